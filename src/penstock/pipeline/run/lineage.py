"""OpenLineage run events: which datasets a pipeline reads and writes, and how its run goes (https://openlineage.io/spec).

They are sent if `[lineage]` or the environment names a URL. Datasets have OpenLineage's names
(https://openlineage.io/docs/spec/naming): a topic is named by its cluster, a folder by its store and path, a table of a
database by the server, the database and its name.
"""

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from penstock import __version__
from penstock.client.http import HttpClient
from penstock.client.paths import lookup_path
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.logs import look
from penstock.pipeline.options import is_url, revealed
from penstock.pipeline.source.cluster import kafka_topics
from penstock.pipeline.spec.spec import Lookup, Sink, Source, Spec

TIMEOUT_S: Final = 5.0
RUNNING_S: Final = 60.0  # between two events of a run that goes on

_SPEC: Final = "https://openlineage.io/spec"
_PRODUCER: Final = f"urn:penstock:{__version__}"
_TYPES: Final = {
    "starting": "START",
    "running": "RUNNING",
    "idle": "RUNNING",
    "restarting": "OTHER",
    "stopped": "COMPLETE",
    "failed": "FAIL",
}

Dataset = dict[str, str]

# By JDBC's name of a database: the scheme, the port and the schema that are meant if a URL names none. MySQL has no schemas.
_DATABASES: Final = {
    "postgresql": ("postgres", 5432, "public"),
    "mysql": ("mysql", 3306, ""),
    "mariadb": ("mysql", 3306, ""),
    "sqlserver": ("mssql", 1433, "dbo"),
    "oracle": ("oracle", 1521, ""),
}
_SERVER: Final = re.compile(
    r"jdbc:(\w+):(?:thin:)?(?:@?//|@)(?:[^/@;?]*@)?([^/:;,?@]+)(?::(\d+))?(?:[/:]([^;?]*))?(.*)", re.DOTALL
)
_DATABASE_NAME: Final = re.compile(r"[;?&]database(?:Name)?=([^;&]+)", re.IGNORECASE)
_TABLE: Final = re.compile(r'[\w$."`\[\]-]+')  # and not a query in parentheses
_CATALOG: Final = "spark.sql.catalog."


def find_datasets(spec: Spec) -> tuple[list[Dataset], list[Dataset]]:
    """The datasets that a pipeline reads, and those that it writes. Asks the server for its topics; raises PenstockError."""
    topics: set[str] = set()
    written = {str(TopicName.parse(sink.topic)) for sink in spec.sinks.values() if sink.topic}
    if spec.dead_letters:
        written.add(str(TopicName.parse(spec.dead_letters)))
    name_of: dict[str, Dataset] = {}
    if spec.uses_server:
        with Calls(spec.server, TIMEOUT_S) as calls:
            for source in spec.sources.values():
                topics |= {str(TopicName.parse(topic)) for topic in source.topics}
                if source.pattern:
                    text = source.pattern.removeprefix("persistent://")
                    parts = text.split("/", 2) if text.count("/") > 1 else ["public", "default", text]
                    patterns = [(NamespaceName.of(*parts[:2]), parts[2])]
                    topics |= {log.topic for log in look(calls, [], patterns).logs or []}
            name_of = _names(spec, calls, topics | written)
    inputs = [name_of[topic] for topic in sorted(topics)]
    outputs = [name_of[topic] for topic in sorted(written)]
    for source in spec.sources.values():
        inputs += _found(spec, source)
    for table in spec.tables.values():
        inputs += _found(spec, table)
    for sink in spec.sinks.values():
        outputs += _found(spec, sink)
    return inputs, outputs


def _names(spec: Spec, calls: Calls, topics: set[str]) -> dict[str, Dataset]:
    namespace = spec.lineage.topics
    if namespace.startswith("kafka:"):
        found = kafka_topics(calls, topics)
        return {topic: {"namespace": namespace, "name": found[topic].name} for topic in topics}
    names: dict[str, Dataset] = {}
    with HttpClient(spec.server, timeout_s=TIMEOUT_S) as client:
        for topic in topics:
            name = TopicName.parse(topic)
            broker = namespace or client.call("GET", lookup_path(name))["brokerUrl"]
            path = f"{name.tenant}/{name.namespace}/{name.local}"
            names[topic] = {"namespace": broker.rstrip("/"), "name": path}
    return names


def _found(spec: Spec, given: Source | Lookup | Sink) -> list[Dataset]:
    """Of a table at a path, or of another format."""
    if path := getattr(given, "path", ""):
        return [table_dataset(path)]
    options = {name.lower(): revealed(name, text) for name, text in given.options.items()}
    return list(format_datasets(given.format.lower(), options, spec.spark))


def format_datasets(format: str, options: Mapping[str, str], spark: Mapping[str, str]) -> Iterator[Dataset]:
    """The datasets that the options of a format of Spark name, in small letters; none if they say too little."""
    path = options.get("path", "")
    match format:
        case "kafka":
            server = options.get("kafka.bootstrap.servers", "").split(",")[0].strip()
            for topic in _kafka_topics(options) if server else ():
                yield {"namespace": f"kafka://{server}", "name": topic}
        case "jdbc":
            yield from _jdbc(options.get("url", ""), options.get("dbtable", ""))
        case "iceberg" if path and "/" not in path:
            yield from _iceberg(path, spark)
        case _ if path:
            yield table_dataset(path)


def _kafka_topics(options: Mapping[str, str]) -> list[str]:
    """Not those of a pattern, which Kafka alone knows, nor those that rows name."""
    with suppress(ValueError):
        if assigned := options.get("assign"):
            return sorted(json.loads(assigned))
    named = options.get("subscribe") or options.get("topic", "")
    return [topic.strip() for topic in named.split(",") if topic.strip()]


def _jdbc(url: str, table: str) -> Iterator[Dataset]:
    found = _SERVER.match(url)
    if found is None or found[1] not in _DATABASES or not _TABLE.fullmatch(table):
        return
    kind, host, port, database, rest = found.groups()
    scheme, usual, schema = _DATABASES[kind]
    if kind == "sqlserver":
        named = _DATABASE_NAME.search(rest)
        database = named[1] if named else ""
    if database and "@" not in database:  # else it is a part of a password
        parts = [part.strip('"`[]') for part in table.split(".")]
        if schema and len(parts) == 1:
            parts.insert(0, schema)
        yield {"namespace": f"{scheme}://{host}:{port or usual}", "name": ".".join([database, *parts])}


def _iceberg(table: str, spark: Mapping[str, str]) -> Iterator[Dataset]:
    """A table of a catalog: by the catalog's address or, for one of folders, by its folder."""
    catalog, _, name = table.partition(".")
    settings = f"{_CATALOG}{catalog}."
    address, warehouse = spark.get(f"{settings}uri", ""), spark.get(f"{settings}warehouse", "")
    if name and address:
        parts = urlsplit(address)
        scheme = {"thrift": "hive"}.get(parts.scheme, parts.scheme)
        yield {"namespace": f"{scheme}://{parts.netloc.rpartition('@')[2]}", "name": name}
    elif name and warehouse:
        yield table_dataset(f"{warehouse.rstrip('/')}/{name.replace('.', '/')}")


def table_dataset(path: str) -> Dataset:
    """A folder, or its URL, as a dataset."""
    if not is_url(path) or path.startswith("file:"):
        return {
            "namespace": "file",
            "name": unquote(urlsplit(path).path) if path.startswith("file:") else path,
        }
    parts = urlsplit(path)
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme  # Hadoop's names of its clients
    user, _, host = parts.netloc.rpartition("@")  # of Azure, the user is a container
    place = host if ":" in user else parts.netloc
    return {"namespace": f"{scheme}://{place}", "name": parts.path.strip("/") or "/"}


def lineage_url(spec: Spec) -> str:
    """The address for run events, or ""."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return ""
    url = spec.lineage.url or os.environ.get("OPENLINEAGE_URL", "")
    endpoint = os.environ.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage")
    return f"{url.rstrip('/')}/{endpoint.lstrip('/')}" if url else ""


@contextmanager
def lineage_sender(spec: Spec) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes a pipeline's events and sends run events. It raises nothing."""
    run, url = LineageRun(spec), lineage_url(spec)

    def send(event: Mapping[str, Any]) -> None:
        made = run.event(event)
        if made is None:
            return
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, json.dumps(made).encode(), headers, method="POST")  # noqa: S310
        with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
            pass

    yield send


class LineageRun:
    """Makes the run events of one run, in the order of its events."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._found: tuple[list[Dataset], list[Dataset]] | None = None
        self._running_at = float("-inf")

    def event(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """The run event for an event of the pipeline; None for a RUNNING event within a minute of the last one."""
        type_ = _TYPES[event["state"]]
        if type_ == "RUNNING":
            if time.monotonic() - self._running_at < RUNNING_S:
                return None
            self._running_at = time.monotonic()
        if self._found is None:
            with suppress(PenstockError):  # the server is away: a later event of the run has them
                self._found = find_datasets(self._spec)
        inputs, outputs = self._found or ([], [])
        spec = self._spec
        namespace = spec.lineage.namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        kind = {
            "processingType": "BATCH" if spec.once else "STREAMING",
            "integration": "PENSTOCK",
            "jobType": "JOB",
        }
        facets = {}
        if event.get("error"):
            error = {"message": event["error"], "programmingLanguage": "PYTHON"}
            facets["errorMessage"] = _facet("1-0-0", "ErrorMessageRunFacet", error)
        return {
            "eventType": type_,
            "eventTime": datetime.fromtimestamp(event["at"] / 1000, UTC).isoformat(timespec="milliseconds"),
            "run": {"runId": event["run_id"], "facets": facets},
            "job": {
                "namespace": namespace,
                "name": spec.name,
                "facets": {"jobType": _facet("2-0-3", "JobTypeJobFacet", kind)},
            },
            "inputs": inputs,
            "outputs": outputs,
            "producer": _PRODUCER,
            "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }


def _facet(version: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    url = f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **fields}
