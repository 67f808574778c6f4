"""What a pipeline takes for granted, asked before Spark is started: the server, its topics, packages. Reads only."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.client.http import HttpClient
from penstock.client.paths import lookup_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import look
from penstock.pipeline.spec.spec import Spec

_EXTRAS: Final = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark", "deltalake": "delta"}


def preflight(spec: Spec) -> None:
    """Raises PipelineError where the server is not there, refuses us, lacks a topic that is to be read, or would
    not create one that is to be written; and where a package is not installed."""
    with HttpClient(spec.server) as client:
        for name, source in spec.sources.items():
            for topic in source.topics:
                _ask(client, spec, f"[sources.{name}]", TopicName.parse(topic), needed=True)
        for name, sink in spec.sinks.items():
            if sink.topic:
                _ask(client, spec, f"[sinks.{name}]", TopicName.parse(sink.topic), needed=False)
        if spec.dead_letters:
            _ask(client, spec, "dead_letters", TopicName.parse(spec.dead_letters), needed=False)
        try:
            if spec.uses_server:
                look(client)  # none: whether the server is there, and tells offsets
        except PenstockError as error:
            raise PipelineError(f"pipeline {spec.name}: {error.message}", error.kind) from None
    stored = not isinstance(spec.home, Path)
    paths = [table.path for table in spec.tables.values()] + [sink.path for sink in spec.sinks.values()]
    need_extras(tables=stored or any(paths))


def _ask(client: HttpClient, spec: Spec, place: str, topic: TopicName, *, needed: bool) -> None:
    try:
        if needed:
            client.partitions(topic.base)
        else:
            client.call("GET", lookup_path(topic.base))
    except PenstockError as error:
        if error.kind is ErrorKind.TOPIC_NOT_FOUND:
            raise PipelineError(f"{spec.file}: {place}: {error.message}", error.kind) from None
        if error.kind is ErrorKind.UNAVAILABLE:
            raise PipelineError(f"pipeline {spec.name}: {error.message}", error.kind) from None
        raise PipelineError(f"{spec.file}: {place}: {topic.base}: {error.message}", error.kind) from None


def need_extras(*, tables: bool = False) -> None:
    """Raises PipelineError where Spark's packages are not installed or, with `tables`, Delta's. Imports none of them."""
    for package, extra in _EXTRAS.items():
        if (tables or extra == "spark") and find_spec(package) is None:
            wanted = "spark,delta" if tables else extra
            raise PipelineError(
                f"{'tables' if extra == 'delta' else 'pipelines'} need the package {package}: pip install"
                f" 'penstock[{wanted}]'",
                ErrorKind.NOT_SUPPORTED,
            )
