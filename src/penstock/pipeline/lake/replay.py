"""A range of an archive published again: `run_replay`, exactly once for each replay id.

What a replay consists of is written down beside the table before its first message is published, with a writer's name
that no other replay has. So a replay that was broken off goes on with the same batches, from the last one that the
server has, and one that is through changes nothing.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages

from .archive import FORMAT, server_options
from .delta import Snapshot
from .options import write_pieces
from .progress import Progress, Report
from .slices import offset_at
from .tables import folder_of, snapshot_of
from .values import Piece
from .versions import versions_for

FOLDER: Final = "_replays"
ROWS_MAX: Final = 500_000  # of a commit
ORIGIN: Final = "x-replay-of"

_CARRIED: Final = ("key", "value", "event_time", "ordering_key")


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is published again, and where to.

    `source` is the archived topic; it may be left out where the table has one only. The range is given by times
    (ms since the epoch, the end exclusive) or by offsets of partitions (the end exclusive); what is left out
    reaches to the end of the archive. `id` names the replay. `keep_partitions`: into the partitions they came
    from, else where their keys belong.
    """

    server: Access
    table: str
    topic: str
    id: str
    source: str = ""
    from_time: int | None = None
    to_time: int | None = None
    from_offsets: dict[int, int] = {}
    to_offsets: dict[int, int] = {}
    keep_partitions: bool = False
    rows_max: int = ROWS_MAX


class Plan(msgspec.Struct, frozen=True):
    """A replay written down: what was asked for, as a digest, the batches, and who writes them.

    A plan that was lost with its table is made again under another writer: what the server has of the first says
    nothing of it. Earlier versions wrote no `writer`.
    """

    asked: str
    batches: list[list[Piece]]
    writer: str = ""


def run_replay(
    spark: SparkSession,
    spec: ReplaySpec,
    *,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Publish the range; `progress` hears of every batch. Raises PipelineError, DataLoss."""
    folder = folder_of(spec.table)
    plan = _planned(spec, folder)
    report = Report()
    total = sum(piece.end - piece.start for batch in plan.batches for piece in batch)
    sources = {piece.topic for batch in plan.batches for piece in batch}
    versions = versions_for(spec.server, sources, spec.topic)
    writer = plan.writer or f"replay-{spec.id}"
    last = _last(spec, writer) if plan.batches else 0
    for number, pieces in enumerate(plan.batches):
        if stopped():
            break
        begun = time.monotonic()
        rows = sum(piece.end - piece.start for piece in pieces)
        report.batches += 1
        report.rows += rows
        if number < last:
            continue  # the server has it
        frame = _frame(spark, spec, tuple(pieces), versions)
        frame.write.format("penstock").mode("append").options(
            topic=spec.topic, writer=writer, batch=str(number), **server_options(spec.server)
        ).save()
        if progress is not None:
            progress(
                Progress(
                    batch=number,
                    rows=rows,
                    rows_total=report.rows,
                    lag=total - report.rows,
                    seconds=time.monotonic() - begun,
                )
            )
    return report


def _last(spec: ReplaySpec, writer: str) -> int:
    """The last batch that the server has of the replay: it is written again, and compared. 0 before the first."""
    topic = TopicName.parse(spec.topic)
    with Stages(spec.server) as client:
        client.open_topics([topic])
        targets = {tuple(found["topics"] or ()): found["batch"] for found in client.status(writer)["targets"]}
    return int(targets.get((str(topic),), targets.get((), 0)))


def ranges(spec: ReplaySpec, folder: Path, now: Snapshot) -> list[Piece]:
    """What is asked for, within what is archived. Raises PipelineError."""
    topic = _source(spec, now)
    timed = spec.from_time is not None or spec.to_time is not None
    if timed and (spec.from_offsets or spec.to_offsets):
        raise PipelineError("a replay's range is given by times or by offsets, not by both")
    pieces = []
    there = _partitions(now, topic)
    if not there:
        raise PipelineError(f"the table {folder} has nothing of {topic}", ErrorKind.NOT_FOUND)
    for partition in {*spec.from_offsets, *spec.to_offsets} - set(there):
        raise PipelineError(f"the table {folder} has nothing of {topic}, partition {partition}")
    for partition in there:
        position = now.position(topic, partition)
        assert position is not None
        start = spec.from_offsets.get(partition, position.first)
        end = spec.to_offsets.get(partition, position.end)
        if spec.from_time is not None:
            start = _at(folder, now, topic, partition, spec.from_time, position.end)
        if spec.to_time is not None:
            end = _at(folder, now, topic, partition, spec.to_time, position.end)
        if not position.first <= start <= position.end or not end <= position.end:
            raise PipelineError(
                f"{topic}, partition {partition}: {start} to {end} is asked for, and the archive has"
                f" {position.first} to {position.end}"
            )
        if start < end:
            pieces.append(Piece(topic, partition, start, end))
    return pieces


def batches(pieces: list[Piece], rows_max: int) -> list[list[Piece]]:
    """Cut into batches of at most `rows_max` rows, partition by partition in order. Pure."""
    found: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            if room == 0:
                found.append([])
                room = rows_max
            end = min(piece.end, start + room)
            found[-1].append(Piece(piece.topic, piece.partition, start, end))
            room -= end - start
            start = end
    return found


def _planned(spec: ReplaySpec, folder: Path) -> Plan:
    """The plan of this id: the one that is written down, or a new one."""
    if not spec.id.strip():
        raise PipelineError("a replay needs an id: what is published under it is published once")
    try:
        TopicName.parse(spec.topic)
    except PenstockError as error:
        raise PipelineError(f"option topic: {error.message}") from None
    now = snapshot_of(folder)
    if "value" not in now.schema.names:
        raise PipelineError(f"the table {folder} has no column value: its messages cannot be published again")
    offsets = sorted(spec.from_offsets.items()), sorted(spec.to_offsets.items())
    wanted = [spec.topic, spec.source, spec.from_time, spec.to_time, offsets, spec.keep_partitions]
    asked = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
    path = folder / FOLDER / f"{hashlib.sha256(spec.id.encode()).hexdigest()[:32]}.json"
    if not path.exists():
        writer = f"replay-{spec.id}-{secrets.token_hex(8)}"
        _write(path, Plan(asked, batches(ranges(spec, folder, now), spec.rows_max), writer))
    plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    if plan.asked != asked:
        raise PipelineError(
            f"the replay {spec.id} was begun with another range or topic; another replay needs another id",
            ErrorKind.ALREADY_EXISTS,
        )
    return plan


def _write(path: Path, plan: Plan) -> None:
    path.parent.mkdir(exist_ok=True)
    aside = path.with_name(f".{uuid4()}.tmp")
    with aside.open("wb") as file:
        file.write(msgspec.json.encode(plan))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(aside, path)
    except FileExistsError:
        pass  # somebody began the same replay at the same moment: theirs counts
    finally:
        aside.unlink()


def _frame(
    spark: SparkSession, spec: ReplaySpec, pieces: tuple[Piece, ...], versions: dict[int, int]
) -> DataFrame:
    """The rows as the sink takes them, each with its origin and the version of its schema."""
    table = (
        spark.read.format(FORMAT).option("path", spec.table).option("offsets", write_pieces(pieces)).load()
    )
    origin = f.concat_ws(":", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    own = f.create_map(f.lit(ORIGIN), origin)
    if "properties" in table.columns:
        kept = f.map_filter("properties", lambda name, _: name != ORIGIN)
        properties = f.when(f.col("properties").isNull(), own).otherwise(f.map_concat(kept, own))
    else:
        properties = own
    columns = [f.col(name) for name in _CARRIED if name in table.columns]
    if versions and "schema_version" in table.columns:
        pairs = [f.lit(number) for pair in versions.items() for number in pair]
        columns.append(f.create_map(*pairs)[f.col("schema_version")].cast("bigint").alias("schema_version"))
    if spec.keep_partitions:
        columns.append(f.col("partition"))
    return table.select(*columns, properties.alias("properties"))


def _source(spec: ReplaySpec, now: Snapshot) -> str:
    if spec.source:
        return str(TopicName.parse(spec.source))
    topics = {
        str(bound["topic"])
        for file in now.files()
        for bound in (file.low, file.high, file.values)
        if "topic" in bound
    }
    if len(topics) != 1:
        raise PipelineError("the table has several topics: the replay's source is needed")
    return topics.pop()


def _partitions(now: Snapshot, topic: str) -> list[int]:
    """The archived partitions of a topic."""
    bounds = [int((file.high | file.values).get("partition") or 0) for file in now.files()]
    last = max(bounds, default=-1)
    return [n for n in range(last + 1) if now.position(topic, n) is not None]


def _at(folder: Path, now: Snapshot, topic: str, partition: int, ms: int, end: int) -> int:
    found = offset_at(folder, now, topic, partition, ms)
    return end if found is None else found
