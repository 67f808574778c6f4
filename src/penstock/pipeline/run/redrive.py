"""Dead letters published again to their topics, each once.

Which letters were published again is stored in the pipeline's state folder, as ranges of offsets. A batch is written
down before it is published, and published under a writer's name that the state has for itself and the batch's number:
after a crash it is chosen and published again, and the server, which may have it, changes nothing. State that was lost,
or another folder of the same pipeline, has another writer: its batches begin at 0 and are not repeats.

In an object store each run writes a separate list, with its epoch in the name, and continues from the latest: a run that
was overtaken may still write, and replaces nothing.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.logs import look
from penstock.pipeline.options import server_options
from penstock.pipeline.source.offsets import write
from penstock.pipeline.spec.spec import Spec
from penstock.pipeline.versions import be_active

from .folder import Folder
from .outputs import PREFIX, ROW
from .state import folder_of

ORIGIN: Final = f"{PREFIX}topic"
VERSION: Final = f"{PREFIX}schema-version"
TOPICS: Final = "persistent://"  # how a topic of ours begins: Kafka's connector has the names of others

_LIST: Final = re.compile(r"redriven(?:\.(\d+))?\.json")
_INCLUDE: Final = "properties,event_time,ordering_key"
_MESSAGE: Final = ("key", "value", "event_time", "ordering_key", "properties", "schema_version")

Ranges = list[tuple[int, int]]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters: those whose reason matches a pattern, and that died in a time (ms since the epoch)."""

    error: str = ""
    since: int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.error)
        except re.error as error:
            raise PipelineError(f"--error: {self.error!r} is no regular expression: {error}") from None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in flight: the letters chosen up to `ends`."""

    choice: Choice
    ends: dict[int, int]


class State(msgspec.Struct, kw_only=True):
    """The letters published again, by partition of the dead-letter topic. Earlier versions wrote no `writer`."""

    writer: str = ""
    number: int = 0
    done: dict[int, Ranges] = {}
    pending: Batch | None = None


class Report(msgspec.Struct, frozen=True):
    """How many letters were published again, and how many have no known origin."""

    redriven: int
    without_origin: int


def letters_of(spec: Spec) -> dict[int, int]:
    """The ends of the partitions of the dead-letter topic. Raises PipelineError if there are no dead letters."""
    if not spec.dead_letters:
        raise PipelineError(f"{spec.file}: the pipeline has no dead_letters")
    with Calls(spec.server) as client:
        found = look(client, [TopicName.parse(spec.dead_letters)])
    if found.missing:
        raise PipelineError(
            f"there are no dead letters: topic {found.missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND
        )
    return {log.partition: log.latest for log in found.logs or []}


def run_redrive(spec: Spec, spark: SparkSession, choice: Choice) -> Report:
    """Publish the chosen letters again: key, value, properties and schema version as they were."""
    be_active(spark)
    folder, alone = folder_of(spec), folder_of(spec, "redrive")
    redriven = 0
    with alone.locked():  # the pipeline itself may run
        state = written(folder) or State(writer=f"redrive-{spec.name}-{secrets.token_hex(8)}")
        if state.pending is not None:  # of a run that was interrupted
            redriven += _publish(spec, spark, state, folder, alone)
        state.pending = Batch(choice=choice, ends=letters_of(spec))
        lost = _chosen(spec, spark, state).where(f.col("origin").isNull()).count()
        if _chosen(spec, spark, state).where(f.col("origin").isNotNull()).limit(1).count():
            write_down(state, folder, alone.epoch)
            redriven += _publish(spec, spark, state, folder, alone)
    return Report(redriven, lost)


def _publish(spec: Spec, spark: SparkSession, state: State, folder: Folder, alone: Folder) -> int:
    alone.confirm()  # what it publishes is written down
    rows = _chosen(spec, spark, state).where(f.col("origin").isNotNull()).persist()
    try:
        offsets = [
            (int(row.partition), int(row.offset)) for row in rows.select("partition", "offset").collect()
        ]
        if offsets:
            again = rows.select(*_MESSAGE, f.col("origin").alias("topic"))
            writer = again.write.format("penstock").mode("append").options(**server_options(spec.server))
            name = state.writer or f"redrive-{spec.name}"
            writer.option("writer", name).option("batch", str(state.number)).save()
    finally:
        rows.unpersist()
    state.done = merged(state.done, offsets)
    state.number += 1
    state.pending = None
    write_down(state, folder, alone.epoch)
    return len(offsets)


def written(folder: Folder) -> State | None:
    """What the latest run wrote down."""
    while lists := _lists(folder):
        state = folder.read(lists[max(lists)], State)
        if state is not None:  # else the run before has just replaced it by its own
            return state
    return None


def write_down(state: State, folder: Folder, epoch: int) -> None:
    """As the run of an epoch, which is 0 in a folder."""
    folder.replace(f"redriven.{epoch}.json" if epoch else "redriven.json", msgspec.json.encode(state))
    for before, name in _lists(folder).items():
        if before < epoch:
            folder.remove(name)


def _lists(folder: Folder) -> dict[int, str]:
    """The names of all lists, by epoch."""
    found = [match for name in folder.names() if (match := _LIST.fullmatch(name))]
    return {int(match[1] or 0): match[0] for match in found}


def _chosen(spec: Spec, spark: SparkSession, state: State) -> DataFrame:
    """The chosen letters that were not published again yet."""
    batch = state.pending
    assert batch is not None
    topic = TopicName.parse(spec.dead_letters)
    options: dict[str, Any] = server_options(spec.server) | {"subscribe": str(topic), "include": _INCLUDE}
    options["endingOffsets"] = write({str(topic): batch.ends})
    rows = spark.read.format("penstock").options(**options).load()
    choice = batch.choice
    if choice.error:
        rows = rows.where(f.col("properties")[f"{PREFIX}error"].rlike(choice.error))
    if choice.since is not None:
        rows = rows.where(f.col("timestamp") >= f.timestamp_millis(f.lit(choice.since)))
    if choice.until is not None:
        rows = rows.where(f.col("timestamp") < f.timestamp_millis(f.lit(choice.until)))
    rows = rows.where(~_within(state.done))
    origin = f.col("properties")[ORIGIN]
    own = f.map_filter("properties", lambda name, _: ~f.startswith(name, f.lit(PREFIX)))
    return rows.select(
        "partition",
        "offset",
        *("key", "value", "event_time", "ordering_key"),
        own.alias("properties"),
        f.col("properties")[VERSION].cast("bigint").alias("schema_version"),
        f.when(f.col("properties")[ROW].isNull() & f.startswith(origin, f.lit(TOPICS)), origin).alias(
            "origin"
        ),
    )


def _within(done: dict[int, Ranges]) -> Column:
    found = f.lit(False)
    for partition, ranges in done.items():
        for start, end in ranges:
            found |= (f.col("partition") == partition) & f.col("offset").between(start, end - 1)
    return found


def merged(done: dict[int, Ranges], offsets: Iterable[tuple[int, int]]) -> dict[int, Ranges]:
    """`done` with more offsets, as few ranges as there can be."""
    pieces: dict[int, Ranges] = {partition: list(ranges) for partition, ranges in done.items()}
    for partition, offset in offsets:
        pieces.setdefault(partition, []).append((offset, offset + 1))
    found: dict[int, Ranges] = {}
    for partition, ranges in pieces.items():
        joined: Ranges = []
        for start, end in sorted(ranges):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        found[partition] = joined
    return found
