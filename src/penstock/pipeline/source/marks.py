"""The position of a stream: the offsets in Spark's checkpoint, and the ranges between two of them. Pure.

    {"ledgers": {"t": {"0": 7}}, "offsets": {"t": {"0": 123}}, "starts": {"t": {"0": 100}}}

`offsets` is Kafka's, of the next message. `ledgers` distinguish a topic from one that was created again under its name; a
topic without partitions has one ledger, not one a partition. `starts` are where a batch begins in a log, where
that is not where the batch before it ended: in logs that it is the first to read, and behind what was lost. So a
batch that is run again needs nothing but its two marks. The same marks are always the same text, because Spark
compares texts: topics are sorted as texts, partitions as numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import Log

from .offsets import Range, Where, check_listed, resolve


class Key(NamedTuple):
    """A log of the query."""

    topic: str
    partition: int


class LogPosition(NamedTuple):
    """A place in a log."""

    ledger: int
    partitioned: bool
    offset: int


class Marks(msgspec.Struct, frozen=True):
    """A position in every log. `initial`: the start of the query, before its first batch."""

    spots: dict[Key, LogPosition]
    starts: dict[Key, int] = {}
    initial: bool = False


class _Shape(msgspec.Struct, forbid_unknown_fields=True):
    ledgers: dict[str, int | dict[int, int]]
    offsets: dict[str, dict[int, int]]
    starts: dict[str, dict[int, int]] = {}
    initial: bool = False


def write_marks(marks: Marks) -> dict[str, Any]:
    """The JSON object."""
    ledgers: dict[str, Any] = {}
    offsets: dict[str, dict[str, int]] = {}
    starts: dict[str, dict[str, int]] = {}
    for key, spot in sorted(marks.spots.items()):
        if spot.partitioned:
            ledgers.setdefault(key.topic, {})[str(key.partition)] = spot.ledger
        else:
            ledgers[key.topic] = spot.ledger
        offsets.setdefault(key.topic, {})[str(key.partition)] = spot.offset
        if key in marks.starts:
            starts.setdefault(key.topic, {})[str(key.partition)] = marks.starts[key]
    written: dict[str, Any] = {"ledgers": ledgers, "offsets": offsets}
    if marks.initial:
        written = {"initial": True, **written}
    if starts:
        written["starts"] = starts
    return written


def read_marks(written: Any) -> Marks:
    """The marks of a JSON object. Raises PipelineError for what this source did not write."""
    try:
        shape = msgspec.convert(written, _Shape, strict=False)
        spots: dict[Key, LogPosition] = {}
        for topic, partitions in shape.offsets.items():
            ledgers = shape.ledgers[topic]
            for partition, offset in partitions.items():
                partitioned = not isinstance(ledgers, int)
                ledger = ledgers if isinstance(ledgers, int) else ledgers[partition]
                spots[Key(topic, partition)] = LogPosition(ledger, partitioned, offset)
    except (msgspec.ValidationError, KeyError) as error:
        raise PipelineError(f"the checkpoint holds no offsets of the source penstock ({error})") from None
    starts = {Key(t, p): offset for t, offsets in shape.starts.items() for p, offset in offsets.items()}
    return Marks(spots, starts, shape.initial)


def beginnings(logs: Iterable[Log], start: Where) -> dict[Key, LogPosition]:
    """The start of a query in each log. Raises PipelineError for offsets past the end, or of other logs."""
    known = sorted(logs)
    check_listed("startingOffsets", start, known)
    spots: dict[Key, LogPosition] = {}
    for log in known:
        offset = resolve(start, log, log.earliest)
        if offset > log.latest:
            raise PipelineError(
                f"option startingOffsets: {log.topic}, partition {log.partition}, ends at {log.latest}, before"
                f" {offset}"
            )
        spots[Key(log.topic, log.partition)] = LogPosition(log.ledger, log.partitioned, offset)
    return spots


class Available(NamedTuple):
    """The available messages: the next offset and the end of each log, and losses, one sentence each."""

    begins: dict[Key, int]
    heads: dict[Key, LogPosition]
    losses: list[str]
    gone: list[Key]  # logs of the query's start that no longer exist

    @property
    def backlog(self) -> dict[Key, int]:
        """How many messages there are in each log."""
        return {key: head.offset - self.begins[key] for key, head in self.heads.items()}


def reach(start: Marks, logs: Iterable[Log]) -> Available:
    """What lies between `start` and the logs as they are. Logs that `start` does not know are read from their
    beginning."""
    begins: dict[Key, int] = {}
    heads: dict[Key, LogPosition] = {}
    losses: list[str] = []
    for log in sorted(logs):
        key = Key(log.topic, log.partition)
        head = LogPosition(log.ledger, log.partitioned, log.latest)
        spot = start.spots.get(key)
        where = f"{log.topic}, partition {log.partition}"
        begin = log.earliest
        if spot is None:
            pass
        elif spot.ledger != log.ledger:
            losses.append(f"{where}: the topic was deleted and made anew")
        elif spot.offset < log.earliest:
            losses.append(f"{where}: offsets {spot.offset} to {log.earliest - 1} are gone")
        elif spot.offset > log.latest:
            losses.append(f"{where}: the query had come to {spot.offset}, but the log ends at {log.latest}")
            begin = log.latest
        else:
            begin = spot.offset
        begins[key], heads[key] = begin, head
    return Available(begins, heads, losses, sorted(start.spots.keys() - heads.keys()))


def advance(start: Marks, found: Available, takes: Mapping[Key, int]) -> Marks:
    """The end of a batch that reads `takes` messages of each log; `start` itself without any."""
    spots = {
        key: head._replace(offset=found.begins[key] + takes.get(key, 0)) for key, head in found.heads.items()
    }
    if spots == start.spots and not start.initial:
        return start
    starts = {
        key: begin
        for key, begin in found.begins.items()
        if start.initial or begin != _expected(start, key, spots)
    }
    return Marks(spots, starts)


def between(start: Marks, end: Marks) -> list[Range]:
    """What a batch reads; a function of its marks alone, whatever has become of the logs."""
    found: list[Range] = []
    for key, spot in sorted(end.spots.items()):
        begin = end.starts.get(key)
        if begin is None:
            begin = _expected(start, key, end.spots)
        if begin < spot.offset:
            found.append(Range(key.topic, key.partition, spot.partitioned, spot.ledger, begin, spot.offset))
    return found


def _expected(start: Marks, key: Key, spots: Mapping[Key, LogPosition]) -> int:
    """The default start of a batch."""
    before = start.spots.get(key)
    return before.offset if before is not None and before.ledger == spots[key].ledger else 0
