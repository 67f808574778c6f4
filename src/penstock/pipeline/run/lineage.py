"""OpenLineage run events: which datasets a pipeline reads and writes, and how its run goes (https://openlineage.io/spec).

They are sent if `[lineage]` or the environment names a URL. Datasets are named by OpenLineage's rules: a topic by its cluster
(`kafka://host:port`, `pulsar://host:port`) and its name, a table by its store and its path.
"""

import json
import os
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
from penstock.pipeline.options import is_url
from penstock.pipeline.source.cluster import kafka_topics
from penstock.pipeline.spec.spec import Spec

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


def lineage_url(spec: Spec) -> str:
    """The address that takes run events; empty if there is none."""
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
        self._found: tuple[list[Any], list[Any]] | None = None
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


def find_datasets(spec: Spec) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The datasets that a pipeline reads, and those that it writes. Asks the server; raises PenstockError."""
    topics: set[str] = set()
    with Calls(spec.server, TIMEOUT_S) as calls:
        for source in spec.sources.values():
            topics |= {str(TopicName.parse(topic)) for topic in source.topics}
            if source.pattern:
                text = source.pattern.removeprefix("persistent://")
                parts = text.split("/", 2) if text.count("/") > 1 else ["public", "default", text]
                patterns = [(NamespaceName.of(*parts[:2]), parts[2])]
                topics |= {log.topic for log in look(calls, [], patterns).logs or []}
        written = {str(TopicName.parse(sink.topic)) for sink in spec.sinks.values() if sink.topic}
        if spec.dead_letters:
            written.add(str(TopicName.parse(spec.dead_letters)))
        name_of = _names(spec, calls, topics | written)
    inputs = [name_of[topic] for topic in sorted(topics)]
    outputs = [name_of[topic] for topic in sorted(written)]
    inputs += [table_dataset(table.path) for table in spec.tables.values() if table.path]
    outputs += [table_dataset(sink.path) for sink in spec.sinks.values() if sink.path]
    return inputs, outputs


def _names(spec: Spec, calls: Calls, topics: set[str]) -> dict[str, dict[str, str]]:
    namespace = spec.lineage.topics
    if namespace.startswith("kafka:"):
        found = kafka_topics(calls, topics)
        return {topic: {"namespace": namespace, "name": found[topic].name} for topic in topics}
    names: dict[str, dict[str, str]] = {}
    with HttpClient(spec.server, timeout_s=TIMEOUT_S) as client:
        for topic in topics:
            name = TopicName.parse(topic)
            broker = namespace or client.call("GET", lookup_path(name))["brokerUrl"]
            path = f"{name.tenant}/{name.namespace}/{name.local}"
            names[topic] = {"namespace": broker.rstrip("/"), "name": path}
    return names


def table_dataset(path: str) -> dict[str, str]:
    """A table's folder, or its URL, as a dataset."""
    if not is_url(path) or path.startswith("file:"):
        return {"namespace": "file", "name": unquote(urlsplit(path).path) if is_url(path) else path}
    parts = urlsplit(path)
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.strip("/") or "/"}


def _facet(version: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    url = f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **fields}
