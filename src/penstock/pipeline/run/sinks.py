"""The sinks of a query, and a batch as it is written to all of them.

The order is that of what can be repeated. First tasks hand rows to the sinks of ours, which no reader sees yet; then these sinks
commit, all at once; then the driver writes to foreign sinks, one after the other, those that know a repeated batch first. So a
foreign sink that does not know it gets a batch twice only if it fails itself, or the process ends before Spark has written down
that the batch is over. The sinks that have a failed batch are in the state folder.

A sink knows a repeated batch by its writer's name: the query's id and a suffix. The suffix that a sink first had is kept in
`owner.json`, by what the sink writes to, however the file names or surrounds the sink later. A batch that was begun and that some
sink has is finished with the sinks that it was begun with: a sink that is gone would lack it, and dead letters that move to
another sink's commit would be written twice.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.options import server_options
from penstock.pipeline.sink.options import Delivery, offered, parse_options
from penstock.pipeline.spec.options import table_options, topic_options
from penstock.pipeline.spec.spec import Sink, Source, Spec, Step
from penstock.pipeline.versions import map_in_arrow

from .checks import DEAD, rejects
from .failures import BatchSinks, at_sink, of_batch, sink_place
from .folder import Folder, SinkWriter
from .formats import ForeignSink, check_format, delivery_of
from .lateness import BatchWatermark, begun, interrupted
from .outputs import Outputs
from .views import load_callable, named
from .writing import RESULT, commit, row_writer

DEAD_LETTERS: Final = "deadLetterTopic"
FOREIGN: Final = "foreign.json"  # in the state folder

# Of the maintenance of tables.
EVERY_S: Final = 300.0  # from one run's start to the next
VACUUM_S: Final = 86_400.0  # it lists every file
STOP_S: Final = 10.0

DEAD_WRITER: Final = "dead-letters"  # of dead letters that no sink's commit takes

_TOPIC: Final = "topic "
_TABLE: Final = "table "

Writers = dict[str, SinkWriter]


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
    """The maintenance of a running pipeline's tables, by a process next to the driver: at most one at a time, started between
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


def suffixes(spec: Spec, known: Mapping[str, SinkWriter]) -> dict[str, str]:
    """What follows the query's id in the name of each sink's writer. `known` are the writers of the checkpoint's last run."""
    targets = {name: _target(spec, sink) for name, sink in spec.sinks.items()}
    found = {
        name: known[name].suffix
        for name, target in targets.items()
        if name in known and known[name].target == target
    }
    for name, target in targets.items():
        renamed = [one for one in targets if one not in found and targets[one] == target]
        free = {one.suffix for one in known.values() if one.target == target} - set(found.values())
        if renamed == [name] and len(free) == 1:
            found[name] = free.pop()
    taken = {one.suffix for one in known.values()}
    for name in targets:
        if name in found:
            continue
        if name in known and known[name].suffix not in found.values():
            found[name] = known[name].suffix
            continue
        suffix = "" if not known and _is_alone(spec) else f"-{name}"
        while suffix in taken:
            suffix += "-"
        found[name] = suffix
        taken.add(suffix)
    return found


def plan_writers(spec: Spec, known: Mapping[str, SinkWriter], *, letters: bool) -> Writers:
    """The writer of each sink. Dead letters, if there may be some, go in the commit of the sink that has taken them so far,
    or of the first one with a topic; without such a sink they have the writer DEAD_WRITER."""
    named = suffixes(spec, known)
    topics = [name for name, sink in spec.sinks.items() if sink.topic]
    before = {one.suffix for one in known.values() if one.letters}
    carrier = next((name for name in topics if named[name] in before), topics[0] if topics else "")
    dead = str(TopicName.parse(spec.dead_letters)) if letters else ""
    found = {
        name: SinkWriter(
            suffix=named[name],
            target=_target(spec, sink),
            letters=dead if name == carrier else "",
            at_once=sink.foreign or sink.delivery not in ("", Delivery.EXACTLY_ONCE),
        )
        for name, sink in spec.sinks.items()
    }
    if letters and not carrier:
        found[DEAD_WRITER] = SinkWriter(suffix=f"-{DEAD_WRITER}", target=_TOPIC + dead, letters=dead)
    return found


def check_open_batch(spec: Spec, folder: Folder, known: Writers, now: Writers, *, change_sinks: bool) -> None:
    """Refuse a file whose sinks or dead letters differ from those of a batch that was begun and that some sink has.

    `change_sinks`: the user says that a sink that is gone need not get it. Raises PipelineError.
    """
    batch = interrupted(folder)
    if batch is None or not known:
        return
    changes = differences(known, now)
    if not changes:
        return
    having = {name for name, one in known.items() if _has(spec, folder.query(), one, batch)}
    if having:
        refuse(spec, batch, known, now, having, change_sinks=change_sinks)


def differences(known: Writers, now: Writers) -> list[str]:
    """A sentence for each writer that is new, gone, or writes something else. Pure."""
    found: list[str] = []
    left = {one.suffix: (name, one) for name, one in now.items()}
    for name, before in known.items():
        place, (_, after) = _place(name), left.pop(before.suffix, ("", None))
        if after is None:
            found.append(f"there is no {place}")
        elif after.target != before.target:
            found.append(f"{place} writes to {after.target}")
        elif after.letters != before.letters:
            found.append(f"{place} {'now takes' if after.letters else 'no longer takes'} the dead letters")
    return found + [f"{_place(name)} is new" for name, _ in left.values()]


def refuse(
    spec: Spec, batch: int, known: Writers, now: Writers, having: Collection[str], *, change_sinks: bool
) -> None:
    """Raise PipelineError, which says the way out, unless the user has chosen it. Pure."""
    after = {one.suffix: one for one in now.values()}
    moved = [
        name
        for name in having
        if (one := after.get(known[name].suffix)) and one.letters != known[name].letters
    ]
    if change_sinks and not moved:
        return
    lacking = [name for name in known if name not in having]
    has = ", ".join(f"{_place(name)} ({known[name].target})" for name in known if name in having)
    lacks = ", ".join(f"{_place(name)} ({known[name].target})" for name in lacking)
    state = f"batch {batch} is in {has}" + (f", and not in {lacks}" if lacks else "")
    way = (
        "put the sinks and dead_letters back as they were, mend what fails, and run until the batch is over (penstock pipeline"
        f" run {spec.file} --once); then change the file"
    )
    if not moved:
        way += (
            ". Where a sink can never get the batch, run once with --change-sinks: a sink that stays takes the batch for a"
            " repeat, and one that is gone lacks it"
        )
    raise PipelineError(
        f"{spec.file}: {state}, and the file has changed since it was begun: {'; '.join(differences(known, now))}. Nothing was"
        f" done: {way}"
    )


def _has(spec: Spec, query: str, writer: SinkWriter, batch: int) -> bool:
    """Whether a batch, or a later one, is in the target of a writer; True if unknown."""
    if writer.at_once:
        return True
    name = f"{query}{writer.suffix}"
    if writer.target.startswith(_TABLE):
        from penstock.pipeline.lake.options import is_table, snapshot_of
        from penstock.pipeline.lake.store import Location

        path = writer.target.removeprefix(_TABLE)
        folder = Location.of(path if "://" in path else str(spec.folder / path), spec.storage)
        last = snapshot_of(folder).last(name) if is_table(folder) else None
        return last is not None and last.batch >= batch
    try:
        with Stages(spec.server) as client:
            targets = client.status(name)["targets"]
    except PenstockError as error:
        if error.kind is ErrorKind.UNAVAILABLE:
            raise
        return True  # a server without staged publishing, or one that does not answer
    return any(found["batch"] >= batch for found in targets)


def _target(spec: Spec, sink: Sink) -> str:
    """What a sink writes to; a table below the file's folder by its relative path, as the two may be moved together."""
    if sink.path:
        below = "://" not in sink.path and Path(sink.path).is_relative_to(spec.folder)
        return _TABLE + (str(Path(sink.path).relative_to(spec.folder)) if below else sink.path)
    if sink.foreign:
        return sink.target
    return (
        _TOPIC + str(TopicName.parse(sink.topic)) if sink.topic else f"topics by column {sink.topic_column}"
    )


def _place(name: str) -> str:
    return "dead_letters" if name == DEAD_WRITER else f"[sinks.{name}]"


def _is_alone(spec: Spec) -> bool:
    """Whether the only sink of a new checkpoint writes under the query's id, as Spark's own queries do."""
    views: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    return len(spec.sinks) == 1 and spec.output != "update" and not any(rejects(view) for view in views)
