"""Runs the streaming query of a pipeline in this process, or checks that it would start.

Every batch is one job, whose tasks write to all sinks, each under its writer's name (`sinks`) and the batch's number, and
then one commit for each sink (`writing`). A sink that has the batch already changes nothing, so a batch that was
interrupted between two sinks is simply run again.
"""

import ast
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.pipeline.decode.decoders import column_type
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.query import table_schema
from penstock.pipeline.spec.options import source_options, table_options
from penstock.pipeline.spec.spec import Source, Spec, Step
from penstock.pipeline.versions import be_active, map_in_arrow

from . import events
from .checks import HIDDEN
from .failures import Cause, at_checkpoint, cause_of, told
from .folder import Folder, Owner, SinkWriter
from .lateness import BatchWatermark
from .outputs import Outputs, check_column, collect_outputs, sink_columns
from .preflight import preflight
from .schemas import schema_for
from .sinks import BatchWriter, Upkeep, check_open_batch, deliveries, open_sinks, plan_writers
from .state import folder_of
from .views import View, build_views, check_columns, check_time, first_on_path, named, session_for
from .writing import RESULT

LOOK_S: Final = 5.0  # whether the JVM is still there
IDLE_S: Final = 60.0  # between two events that say that nothing happens; Spark says it every other second
NEVER: Final = float("-inf")
LISTENER_S: Final = 10.0  # for Spark's events of the last batch to arrive

Emit = Callable[[dict[str, Any]], None]

_COLUMNS: Final = ("key", "properties", "event_time", "ordering_key", "topic_column")


def start_query(
    spec: Spec,
    spark: SparkSession,
    outputs: Outputs,
    writers: Mapping[str, SinkWriter],
    watermark: BatchWatermark,
    folder: Folder,
    upkeep: Upkeep | None,
    *,
    once: bool,
) -> StreamingQuery:
    """Start it; from here on the checkpoint is in use. `upkeep` learns of each batch that is over."""
    sinks = open_sinks(spec, spark, outputs, writers)
    writer = BatchWriter(spec, sinks, watermark, folder, upkeep)
    frame = outputs.frame if sinks.at_once else map_in_arrow(outputs.frame, writer.write, RESULT)
    stream = frame.writeStream.foreachBatch(writer).outputMode(spec.output)
    stream = stream.option("checkpointLocation", folder.checkpoint_url).queryName(spec.name)
    stream = stream.trigger(availableNow=True) if once else stream.trigger(processingTime=spec.trigger)
    query: StreamingQuery = stream.start()
    return query


def check_streaming(spec: Spec, session: SparkSession, frame: DataFrame) -> None:
    """What Spark itself asks of a streaming query before it starts it."""
    if not frame.isStreaming:
        raise PipelineError(f"{spec.file}: no sink has rows of a source")
    jvm: Any = session._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[spec.output]()
    try:
        analysis.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise PipelineError(f"{spec.file}: {cause_of(error).sentence}") from None


def _limits(name: str, source: Source) -> str:
    """How much of a source a batch takes at most."""
    if source.format:
        return f"[sources.{name}] a batch takes what the options of format {source.format} say"
    rows, size = source.max_rows_per_batch, source.max_bytes_per_batch
    texts = [f"{rows:,} rows"] if rows else []
    texts += [f"{size / (1 << 20):,.6g} MiB"] if size else []
    return f"[sources.{name}] a batch takes at most {' and '.join(texts) or 'all that there is'}"


class Checked(msgspec.Struct):
    """What a check found out: the columns of every view and sink, Catalyst's plan as text, and how sinks are written."""

    views: dict[str, dict[str, str]]
    sinks: dict[str, dict[str, str]]
    plan: str
    deliveries: list[str]  # a line for each sink
    readings: int  # how often a batch of a source is read
    limits: list[str]  # a line for each source: how much of it a batch takes at most


def check(spec: Spec, spark: SparkSession) -> Checked:
    """Everything that can be known without running a pipeline. Nothing is written, nothing of a topic read.

    Raises PipelineError for the first thing that would not run.
    """
    folder = folder_of(spec)
    owner = folder.check_owner(spec)
    preflight(spec)
    session = session_for(spec, spark)
    views = build_views(spec, session, BatchWatermark(session, folder))
    outputs = collect_outputs(spec, views)
    sinks: dict[str, dict[str, str]] = {}
    for name, sink in spec.sinks.items():
        rows = views[sink.input].frame
        sinks[name] = dict(rows.select(*sink_columns(spec, name, rows)).dtypes)
    check_streaming(spec, session, outputs.frame)
    if owner is not None:
        writers = plan_writers(spec, owner.sinks, letters=outputs.letters)
        check_open_batch(spec, folder, owner.sinks, writers, change_sinks=False)
    check_tables(spec, views)
    return Checked(
        views={name: dict(view.frame.dtypes) for name, view in views.items()},
        sinks=sinks,
        plan=outputs.frame._jdf.queryExecution().analyzed().treeString(),
        deliveries=deliveries(spec, session),
        readings=outputs.readings,
        limits=[_limits(name, source) for name, source in spec.sources.items()],
    )


class Runner:
    """One query of a pipeline. `emit` gets the event of every batch, in the order of the batches."""

    def __init__(self, spec: Spec, folder: Folder, spark: SparkSession, emit: Emit) -> None:
        self._spec = spec
        self._folder = folder
        self._spark = session_for(spec, spark)
        self._emit = emit
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._changed = threading.Event()  # a batch is over, the query is over, or an order to stop came
        self._listener: _Listener | None = None
        self._watermark: BatchWatermark | None = None
        self._upkeep: Upkeep | None = None

    def start(self, owner: Owner | None, *, once: bool, change_sinks: bool = False) -> None:
        """Plan and start the query, and report that it runs. Raises PipelineError or what Spark raises.

        `change_sinks`: see `writers.check_open_batch`.
        """
        start = owner.start if owner is not None else None
        spec = self._spec if start is None else _with_start(self._spec, start)
        be_active(self._spark)
        self._folder.begin(self._spark)
        self._watermark = watermark = BatchWatermark(self._spark, self._folder)
        views = build_views(spec, self._spark, watermark)
        outputs = collect_outputs(spec, views)
        check_streaming(spec, self._spark, outputs.frame)
        known = {} if owner is None else owner.sinks
        writers = plan_writers(spec, known, letters=outputs.letters)
        check_open_batch(spec, self._folder, known, writers, change_sinks=change_sinks)
        self._folder.own(self._spec, start, writers)
        self._listener = _Listener(self._emit, self._stopping, self._changed)
        self._spark.streams.addListener(self._listener)
        try:
            self._upkeep = None if once else Upkeep(spec)
            self._query = start_query(
                spec, self._spark, outputs, writers, watermark, self._folder, self._upkeep, once=once
            )
        except BaseException:
            self._spark.streams.removeListener(self._listener)
            if owner is None:  # nothing has begun
                self._folder.forget()
            raise
        self._listener.query = str(self._query.id)
        self._emit(
            events.state_event(
                events.RUNNING, query=self._listener.query, ui=self._spark.sparkContext.uiWebUrl
            )
        )

    def stop(self) -> None:
        """Stop after the batch that runs now."""
        self._stopping.set()
        self._changed.set()

    def kill(self) -> None:
        """Stop now; the batch that runs is run again by the next run."""
        if self._query is not None:
            with suppress(PySparkException):
                self._query.stop()

    def wait(self) -> Cause | None:
        """Until the query is over; why it failed, None if it did not."""
        query, listener = self._query, self._listener
        assert query is not None
        assert listener is not None
        while query.isActive:
            if self._stopping.is_set() and (
                listener.batch_over.is_set() or not query.status["isTriggerActive"]
            ):
                query.stop()
                break
            self._changed.wait(0.05 if self._stopping.is_set() else LOOK_S)
            if not self._stopping.is_set():
                self._changed.clear()
        if self._upkeep is not None:
            self._upkeep.stop()
        listener.over.wait(LISTENER_S)
        with suppress(Exception):  # of a JVM that is gone
            self._spark.streams.removeListener(listener)
        error = query.exception()
        if error is None:
            return None
        written = -1 if self._watermark is None else self._watermark.written
        return told(self._spec, at_checkpoint(cause_of(error), self._folder.home, written))


class _Listener(StreamingQueryListener):
    """Spark's events of one query; called from a thread of py4j's."""

    def __init__(self, emit: Emit, stopping: threading.Event, changed: threading.Event) -> None:
        super().__init__()
        self._emit = emit
        self._stopping = stopping
        self._changed = changed
        self.query = ""
        self._idle_at = NEVER  # when the last event said that there is nothing to do
        self.over = threading.Event()
        self.batch_over = threading.Event()  # set only while a thread waits for it

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        self.query = self.query or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = json.loads(event.progress.json)
        if str(found.get("id")) != self.query:
            return
        self._idle_at = NEVER
        made = events.batch_event(found)
        if not found.get("numInputRows") and not made["rows"] and not made["written"]:
            made["state"] = events.IDLE
        self._emit(made)
        if self._stopping.is_set():
            self.batch_over.set()
        self._changed.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.id) != self.query or time.monotonic() - self._idle_at < IDLE_S:
            return
        self._idle_at = time.monotonic()
        self._emit(events.state_event(events.IDLE))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.id) == self.query:
            self.over.set()
            self._changed.set()


def _with_start(spec: Spec, start_ms: int) -> Spec:
    """The spec with all sources beginning at a time."""
    sources = {name: msgspec.structs.replace(source, start=start_ms) for name, source in spec.sources.items()}
    return msgspec.structs.replace(spec, sources=sources)


def check_tables(spec: Spec, views: dict[str, View]) -> None:
    """Raises PipelineError, which names the sink, for a type that no table keeps and for rows that do not fit a table."""
    for name, sink in spec.sinks.items():
        if not sink.path:
            continue
        from penstock.pipeline.lake.options import write_options
        from penstock.pipeline.lake.sink import planned

        rows = views[sink.input].frame
        columns = rows.select(*sink_columns(spec, name, rows)).schema
        try:
            planned(write_options(table_options(spec, sink)), columns)
        except PipelineError as error:
            place = f"{spec.file}: [sinks.{name}] (table {sink.path})"
            raise PipelineError(f"{place}: {error.message}", error.kind) from None


def check_early(spec: Spec) -> None:
    """What can be known before Spark is started: the columns of sources and of steps that leave them as they are, and the
    user's functions, whose modules are read, but not imported. Nothing is checked that is not checked again by `check`.

    Raises PipelineError, which names the place. Asks the server for schemas.
    """
    known: dict[str, StructType] = {}
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            if source.format:  # Spark alone knows its columns
                if source.decode != "none":
                    column_type(schema_for(spec, source.reader_schema))
                continue
            schema = known[name] = table_schema(source_options(spec, name, source))
            if source.watermark is not None:
                check_time(schema, source.watermark.column)
    for step in spec.steps:
        with named(spec, f"[[steps]] {step.name}"):
            _check_step(spec, step, known)
    for name, sink in spec.sinks.items():
        if sink.python:
            with named(spec, f"[sinks.{name}]"):
                check_callable(spec.folder, sink.python, "python")
        if sink.input in known:
            there = [column for column in known[sink.input].names if column not in HIDDEN]
            values = (sink.value,) if isinstance(sink.value, str) else sink.value
            named_columns = [("value", column) for column in values if column]
            named_columns += [(key, column) for key in _COLUMNS if (column := getattr(sink, key))]
            for key, column in named_columns:
                check_column(spec, name, key, column, there)


def _check_step(spec: Spec, step: Step, known: dict[str, StructType]) -> None:
    for key in ("python", "stateful"):
        if text := getattr(step, key):
            check_callable(spec.folder, text, key)
    before = known.get(step.inputs[0]) if step.inputs else None
    if before is None:
        return
    check_columns(before, "keys", step.keys)
    if step.deduplicate:
        check_columns(before, "deduplicate", step.deduplicate)
        known[step.name] = before
        if step.watermark is not None:
            check_time(before, step.watermark.column)


def check_callable(folder: Path, text: str, where: str) -> None:
    """Raises PipelineError for a module that is missing or not Python, or that lacks the name, as
    `load_callable` does later. What cannot be known without running code passes."""
    module, _, name = text.partition(":")
    with first_on_path(folder):
        found = _found(module, where)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return
    try:
        content = Path(found.origin).read_bytes()
        ast.parse(content, found.origin)
    except (SyntaxError, ValueError) as error:
        raise PipelineError(
            f"{where}: module {module} fails when it is imported: {type(error).__name__}: {error}"
        ) from None
    except OSError:
        return
    words = rf"\b(?:{re.escape(name)}|__getattr__|globals)\b|import\s+\*"
    if not re.search(words, content.decode(errors="replace")):
        raise PipelineError(f"{where}: module {module} has no function or class {name}")


def _found(module: str, where: str) -> ModuleSpec | None:
    """The location of a module; None if only its package's code may know."""
    top, *rest = module.split(".")
    name = top
    try:
        found = find_spec(top)
    except ValueError:  # it is imported, and its location is unknown
        return None
    if found is None:
        raise PipelineError(f"{where}: module {module} cannot be imported: No module named {top!r}")
    for part in rest:
        name = f"{name}.{part}"
        found = PathFinder.find_spec(name, found.submodule_search_locations or [])
        if found is None:
            return None
    return found
