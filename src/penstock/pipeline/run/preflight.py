"""Checks before Spark starts: whether everything that a pipeline needs exists (the server, its topics, packages),
and how much a run that ends by itself has to read, as Java is started accordingly. Reads only, and imports no Spark.
"""

import json
from contextlib import nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.client.http import HttpClient
from penstock.client.paths import lookup_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Caller, Calls
from penstock.pipeline.http.logs import look
from penstock.pipeline.source.marks import Key, LogPosition, Marks, reach, read_marks
from penstock.pipeline.spec.spec import Source, Spec

from .folder import Folder

_EXTRAS: Final = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark", "deltalake": "delta"}

# Up to about 800,000 messages of a third of a kilobyte a run costs less CPU without Java's slow compiler (decision 0086).
MESSAGES_MAX: Final = 500_000
BYTES_MAX: Final = 250_000_000


def preflight(spec: Spec) -> None:
    """Raises PipelineError if the server is not there, refuses us, lacks a topic that is to be read, or would
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
                look(client)  # without topics: whether the server answers, and has offsets
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
    """Raises PipelineError if Spark's packages are not installed or, with `tables`, Delta's. Imports none of them."""
    for package, extra in _EXTRAS.items():
        if (tables or extra == "spark") and find_spec(package) is None:
            wanted = "spark,delta" if tables else extra
            raise PipelineError(
                f"{'tables' if extra == 'delta' else 'pipelines'} need the package {package}: pip install"
                f" 'penstock[{wanted}]'",
                ErrorKind.NOT_SUPPORTED,
            )


def is_short(spec: Spec, folder: Folder, client: Caller | None = None) -> bool:
    """Whether a run over available messages ends soon. Not if that is unknown beforehand: of a pattern's topics, of
    other formats, and of tables that are joined. An upper bound will do, as nothing but speed hangs on it."""
    if spec.tables or any(source.pattern or source.format for source in spec.sources.values()):
        return False
    reached = last_marks(folder)
    messages = size = 0
    try:
        with nullcontext(client) if client is not None else Calls(spec.server) as caller:
            for source in spec.sources.values():
                count, taken = _backlog(caller, source, reached)
                messages, size = messages + count, size + taken
    except PenstockError:
        return False  # it will be said when the run asks
    return messages <= MESSAGES_MAX and size <= BYTES_MAX


def _backlog(caller: Caller, source: Source, reached: Marks) -> tuple[int, int]:
    """Messages to be read, and about how many bytes they take."""
    logs = look(caller, [TopicName.parse(topic).base for topic in source.topics]).logs or []
    waiting = reach(reached, logs).backlog
    size = 0
    for log in logs:
        held = log.latest - log.earliest
        size += log.bytes * waiting[Key(log.topic, log.partition)] // held if held else 0
    return sum(waiting.values()), size


def last_marks(folder: Folder) -> Marks:
    """How far the last batch went that is over; no marks before there is one."""
    spots: dict[Key, LogPosition] = {}
    with suppress(OSError, ValueError, PenstockError):
        if (last := folder.last_committed()) >= 0:
            for line in folder.offsets(last)[1:]:
                spots |= read_marks(json.loads(line)).spots
    return Marks(spots)
