"""The sinks of a query, and a batch as it is written to all of them.

The order is that of what can be repeated. First tasks hand rows to the sinks of ours, which no reader sees yet; then these sinks
commit, all at once; then the driver writes to foreign sinks, one after the other, those that know a repeated batch first. So a
foreign sink that does not know it gets a batch twice only if it fails itself, or the process ends before Spark has written down
that the batch is over. What was written in a batch that failed is in the state folder.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.options import server_options
from penstock.pipeline.sink.options import offered, parse_options
from penstock.pipeline.spec.options import table_options, topic_options
from penstock.pipeline.spec.spec import Spec
from penstock.pipeline.versions import map_in_arrow

from .checks import DEAD
from .failures import BatchSinks, at_sink, of_batch, sink_place
from .folder import Folder, SinkWriter
from .formats import ForeignSink, check_format, delivery_of
from .lateness import BatchWatermark, begun, interrupted
from .outputs import Outputs
from .views import load_callable, named
from .writers import DEAD_WRITER
from .writing import RESULT, commit, row_writer

DEAD_LETTERS: Final = "deadLetterTopic"
FOREIGN: Final = "foreign.json"  # in the state folder

EVERY_S: Final = 300.0  # from one run's start to the next
VACUUM_S: Final = 86_400.0  # it lists every file
STOP_S: Final = 10.0


class Sinks(msgspec.Struct):
    """Writers of ours and foreign sinks by name, with the columns of structs that each takes."""

    ours: dict[str, tuple[Any, tuple[str, ...]]]
    foreign: dict[str, tuple[ForeignSink, str]]

    @property
    def at_once(self) -> bool:
        """Whether rows are seen before all of them are computed, unless these are stored first."""
        return bool(self.foreign) or any(sink.at_once for sink, _ in self.ours.values())


def open_sinks(spec: Spec, spark: SparkSession, outputs: Outputs, writers: Mapping[str, SinkWriter]) -> Sinks:
    """Each sink as `writers` says. Raises PipelineError."""
    from penstock.pipeline.sink.writer import TopicStreamWriter

    sinks = Sinks({}, {})
    for name, sink in spec.sinks.items():
        column = outputs.columns[name]
        schema = outputs.frame.schema[column].dataType
        suffix = writers[name].suffix
        with at_sink(f"{spec.file}: {sink_place(spec, name)}"):
            if sink.foreign:
                function = load_callable(spec.folder, sink.python, "python") if sink.python else None
                sinks.foreign[name] = ForeignSink(spark, sink, suffix, function), column
            elif sink.path:
                from penstock.pipeline.lake.sink import StreamWriter

                table = StreamWriter(table_options(spec, sink), schema, overwrite=False, suffix=suffix)
                table.create()
                sinks.ours[name] = table, (column,)
            else:
                columns: tuple[str, ...] = (column,)
                options = topic_options(spec, sink)
                if writers[name].letters:
                    options[DEAD_LETTERS], columns = spec.dead_letters, (column, DEAD)
                sinks.ours[name] = TopicStreamWriter(options, schema, suffix=suffix), columns
    if DEAD_WRITER in writers:
        options = server_options(spec.server) | dict.fromkeys(("topic", DEAD_LETTERS), spec.dead_letters)
        schema = StructType([StructField("value", BinaryType())])
        writer = TopicStreamWriter(options, schema, suffix=writers[DEAD_WRITER].suffix)
        sinks.ours[DEAD_WRITER] = writer, (DEAD,)
    return sinks


def deliveries(spec: Spec, spark: SparkSession) -> list[str]:
    """A line for each sink: how often it has a row after a batch is repeated. Raises PipelineError for what there is not."""
    staged = False
    if any(sink.topic or sink.topic_column for sink in spec.sinks.values()):
        with Stages(spec.server, retry_s=0) as client:
            staged = client.open_topics([]).staged
    lines: list[str] = []
    for name, sink in spec.sinks.items():
        delivery = "exactly_once"
        with named(spec, sink_place(spec, name)):
            if sink.foreign:
                delivery = delivery_of(sink)
                if sink.python:
                    load_callable(spec.folder, sink.python, "python")
                else:
                    check_format(spark, sink.format)
            elif not sink.path:
                options = parse_options(topic_options(spec, sink), streaming=True)
                delivery = offered(options, staged=staged)
        lines.append(f"[sinks.{name}] delivery: {delivery}")
    return lines


class Progress(msgspec.Struct):
    """The foreign sinks, by the suffixes of their writers, that have a batch of a query."""

    query: str
    batch: int
    sinks: list[str]


class Upkeep:
    """The maintenance of a running pipeline's tables, by a process beside the driver: at most one at a time, started between
    batches. No batch waits for it: a commit looks again if the maintenance was faster, as for any other writer."""

    def __init__(
        self, spec: Spec, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables = [sink.path for sink in spec.sinks.values() if sink.path and sink.compact]
        self._storage = spec.storage
        self._every_s = every_s
        self._clock = clock
        self._due = clock() + every_s
        self._vacuum_due = self._due
        self._process: subprocess.Popen[bytes] | None = None

    def batch_over(self) -> None:
        """Start the process if it is time, and the one before has ended."""
        now = self._clock()
        if not self._tables or now < self._due or (self._process and self._process.poll() is None):
            return
        self._due = now + self._every_s
        vacuum = now >= self._vacuum_due
        if vacuum:
            self._vacuum_due = now + VACUUM_S
        orders = [{"path": path, "storage": self._storage, "vacuum": vacuum} for path in self._tables]
        command = [sys.executable, "-m", "penstock.pipeline.lake.maintenance"]
        # The batch is written: it does not fail because the maintenance cannot be started.
        with suppress(OSError):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            assert self._process.stdin is not None
            with self._process.stdin as orders_to:
                orders_to.write(msgspec.json.encode(orders))

    def stop(self) -> None:
        """End a process that runs: what it has not committed, the next one does again."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class BatchWriter:
    """Has a batch computed and written, and commits it in every sink that got rows of it.

    The first batch of a run may be one that was committed before, or come from a checkpoint that was rolled back: every
    sink of ours looks at its number, rows or not. Those behind it are new.
    """

    def __init__(
        self,
        spec: Spec,
        sinks: Sinks,
        watermark: BatchWatermark,
        folder: Folder,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._spec = spec
        self._upkeep = upkeep
        self._writers = {name: writer for name, (writer, _) in sinks.ours.items()}
        self._foreign = dict(sorted(sinks.foreign.items(), key=lambda item: not item[1][0].exactly_once))
        self._at_once = sinks.at_once
        self._watermark = watermark
        self._folder = folder
        self._unseen = begun(folder)
        self._interrupted = interrupted(folder)
        self.write = row_writer(sinks.ours, {name: sink_place(spec, name) for name in sinks.ours})

    def __call__(self, batch: DataFrame, number: int) -> None:
        again = number == self._interrupted
        with of_batch(self._spec, number, at_once=self._at_once, may_repeat=again) as sinks:
            self._folder.begin_batch(number)
            self._watermark.check(number)
            if not self._at_once:
                self._commit(batch.collect(), number, sinks)
            else:
                self._write_at_once(batch, number, sinks)
        self._unseen = False
        self._watermark.advance(number)
        if self._upkeep is not None:
            self._upkeep.batch_over()

    def _query(self) -> str:
        """The id that the query has as long as its checkpoint lives. Raises PipelineError."""
        if not (query := self._folder.query()):
            raise PipelineError(f"{self._folder.checkpoint_url}/metadata cannot be read")
        return query

    def _commit(self, found: list[Any], number: int, sinks: BatchSinks) -> None:
        nothing: dict[str, WriterCommitMessage] = {}
        if self._unseen:
            query = self._query()
            nothing = {name: writer.nothing(query, number) for name, writer in self._writers.items()}
        commit(self._writers, found, number, nothing, sinks.writing)

    def _write_at_once(self, batch: DataFrame, number: int, sinks: BatchSinks) -> None:
        """Compute all rows before the first is written, as an expectation that fails must do so before."""
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = [f.count(column).alias(name) for name, (_, column) in self._foreign.items()]
            rows: Any = batch.agg(f.count(f.lit(1)), *counts).first()
            if self._writers:
                self._commit(map_in_arrow(batch, self.write, RESULT).collect(), number, sinks)
            if self._foreign:
                self._write_foreign(batch, number, rows.asDict(), sinks)
        finally:
            batch.unpersist()

    def _write_foreign(
        self, batch: DataFrame, number: int, counts: Mapping[str, int], sinks: BatchSinks
    ) -> None:
        query = self._query()
        done = self._folder.read(FOREIGN, Progress)
        if done is None or (done.query, done.batch) != (query, number):
            done = Progress(query, number, [])
        waiting = [
            (name, sink, column)
            for name, (sink, column) in self._foreign.items()
            if (counts[name] or self._spec.sinks[name].mode == "overwrite") and sink.suffix not in done.sinks
        ]
        for name, sink, column in waiting:
            with sinks.writing(name):
                rows = batch.where(f.col(column).isNotNull()).select(f"{column}.*")
                sink.write(rows, query, number, repeated=self._unseen)
            done.sinks.append(sink.suffix)
            if name != waiting[-1][0]:  # what comes may fail
                self._folder.replace(FOREIGN, msgspec.json.encode(done))
