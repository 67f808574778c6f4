"""What a replay publishes: written down beside the table, under the replay's id, before it begins."""

import hashlib
import secrets
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import shown

from .delta import Table
from .options import snapshot_of
from .slices import offset_at
from .snapshot import Snapshot
from .store import Location
from .values import OffsetRange

FOLDER: Final = "_replays"
ROWS_MAX: Final = 500_000  # of a commit


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is published again, and where to. `table` is a path or a URL, whose object store has the options `storage`.

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
    storage: dict[str, str] = {}

    def __repr__(self) -> str:
        return shown(self, "storage")


class Plan(msgspec.Struct, frozen=True):
    """A replay written down: what was asked for, as a digest, the batches, and the name of the writer.

    A plan that was lost with its table is made again under another writer: what the server has of the first says
    nothing of it. Earlier versions wrote no `writer`.
    """

    asked: str
    batches: list[list[OffsetRange]]
    writer: str = ""


def planned(spec: ReplaySpec, folder: Location) -> Plan:
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
    with folder.reached():
        number, plan = _written(spec, folder)
        if plan is None:
            writer = f"replay-{spec.id}-{secrets.token_hex(8)}"
            made = Plan(asked, batches(ranges(spec, folder, now), spec.rows_max), writer)
            _write(spec, folder, made, number)
            _, plan = _written(spec, folder)
    assert plan is not None
    if plan.asked != asked:
        raise PipelineError(
            f"the replay {spec.id} was begun with another range or topic; another replay needs another id",
            ErrorKind.ALREADY_EXISTS,
        )
    return plan


def ranges(spec: ReplaySpec, folder: Location, now: Snapshot) -> list[OffsetRange]:
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
            pieces.append(OffsetRange(topic, partition, start, end))
    return pieces


def batches(pieces: list[OffsetRange], rows_max: int) -> list[list[OffsetRange]]:
    """Cut into batches of at most `rows_max` rows, partition by partition in order. Pure."""
    found: list[list[OffsetRange]] = []
    room = 0
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            if room == 0:
                found.append([])
                room = rows_max
            end = min(piece.end, start + room)
            found[-1].append(OffsetRange(piece.topic, piece.partition, start, end))
            room -= end - start
            start = end
    return found


def _written(spec: ReplaySpec, folder: Location) -> tuple[int | None, Plan | None]:
    """The plan that counts, and its number. Earlier versions wrote it under a name without a number."""
    number = Table(folder).claimed(spec.id)
    try:
        content = folder.read(_path(spec, "" if number is None else f"-{number}"))
    except FileNotFoundError:
        return number, None
    return number, msgspec.json.decode(content, type=Plan)


def _write(spec: ReplaySpec, folder: Location, plan: Plan, seen: int | None) -> None:
    """Write a plan beside the table, and have the table say which one counts: another process may have begun the same
    replay at the same moment."""
    number = secrets.randbits(62)
    folder.write(_path(spec, f"-{number}"), msgspec.json.encode(plan))
    if Table(folder).claim(spec.id, number, seen) != number:
        folder.remove(_path(spec, f"-{number}"))


def _path(spec: ReplaySpec, ending: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(spec.id.encode()).hexdigest()[:32]}{ending}.json"


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


def _at(folder: Location, now: Snapshot, topic: str, partition: int, ms: int, end: int) -> int:
    found = offset_at(folder, now, topic, partition, ms)
    return end if found is None else found
