"""Offsets of a query: those of its options, the bounds of its reads, and their JSON. Pure.

An offset is that of the next message: a range ends before its end. The JSON is Kafka's,
`{"topic": {"0": 123}}`, always with sorted keys and without spaces, because Spark compares offsets as text.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log

EARLIEST_MARK: Final = -2  # Kafka's, in JSON
LATEST_MARK: Final = -1


class End(Enum):
    """An end of the log."""

    EARLIEST = EARLIEST_MARK
    LATEST = LATEST_MARK


class Time(msgspec.Struct, frozen=True):
    """The first message published at or after `ms` since the epoch."""

    ms: int


class Listed(msgspec.Struct, frozen=True):
    """An offset, or EARLIEST_MARK or LATEST_MARK, for each partition of each topic that is listed."""

    offsets: dict[str, dict[int, int]]


class ListedTimes(msgspec.Struct, frozen=True):
    """A time, as of `Time`, for each partition of each topic that is listed."""

    times: dict[str, dict[int, int]]


Where = End | Time | Listed | ListedTimes


class Range(msgspec.Struct, frozen=True, order=True):
    """The offsets `start .. end-1` of a log."""

    topic: str
    partition: int
    partitioned: bool
    ledger: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def parse_where(option: str, text: str) -> Where:
    """`earliest`, `latest` or JSON."""
    match text.strip().lower():
        case "earliest":
            return End.EARLIEST
        case "latest":
            return End.LATEST
    return Listed(parse(option, text))


def parse_times(option: str, text: str) -> ListedTimes:
    """Times in ms since the epoch from JSON, by full topic name."""
    found = parse(option, text, "")
    if any(ms < 0 for times in found.values() for ms in times.values()):
        raise PipelineError(f"option {option}: a time is ms since the epoch, from 0 on")
    return ListedTimes(found)


def parse(option: str, text: str, other: str = "earliest, latest or ") -> dict[str, dict[int, int]]:
    """Offsets, or times, from JSON, by full topic name; `other` is what else might be said."""
    try:
        raw = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise PipelineError(
            f'option {option}: expected {other}JSON like {{"topic": {{"0": 123}}}} ({error})'
        ) from None
    found: dict[str, dict[int, int]] = {}
    for name, partitions in raw.items():
        try:
            full = str(TopicName.parse(name))
        except PenstockError as error:
            raise PipelineError(f"option {option}: {error.message}") from None
        for partition, offset in partitions.items():
            if partition < 0 or offset < EARLIEST_MARK:
                raise PipelineError(
                    f"option {option}: {name} has no partition {partition} at offset {offset}"
                )
        found.setdefault(full, {}).update(partitions)
    return found


def write(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Offsets as JSON; the same offsets are always the same text."""
    plain = {t: {str(p): o for p, o in sorted(ps.items())} for t, ps in sorted(offsets.items())}
    return json.dumps(plain, separators=(",", ":"))


def times(*wheres: Where) -> list[int]:
    """The times whose offsets `ranges` will need."""
    found = {where.ms for where in wheres if isinstance(where, Time)}
    for where in wheres:
        if isinstance(where, ListedTimes):
            found.update(ms for listed in where.times.values() for ms in listed.values())
    return sorted(found)


def ranges(logs: Iterable[Log], start: Where, end: Where, *, fail_on_data_loss: bool = True) -> list[Range]:
    """The ranges to read of each log, without empty ones.

    Raises DataLoss if a start is older than the log, unless `fail_on_data_loss` is off: then the range
    begins with the log.
    """
    known = sorted(logs)
    check_listed("startingOffsets", start, known)
    check_listed("endingOffsets", end, known)
    found: list[Range] = []
    for log in known:
        first = resolve(start, log, log.earliest)
        last = resolve(end, log, log.latest)
        if first < log.earliest:
            if fail_on_data_loss:
                raise DataLoss(
                    f"{log.topic}, partition {log.partition}: offset {first} is asked for, but the log begins at"
                    f" {log.earliest} (option failOnDataLoss=false reads what there is)"
                )
            first = log.earliest
        if max(first, last) > log.latest:
            raise PipelineError(
                f"{log.topic}, partition {log.partition}: offset {max(first, last)} is asked for, but the log ends"
                f" at {log.latest}"
            )
        if first < last:
            found.append(Range(log.topic, log.partition, log.partitioned, log.ledger, first, last))
    return found


def check_listed(option: str, where: Where, logs: list[Log]) -> None:
    """What an option lists must be part of the query: a slip of the pen would read too much or nothing."""
    if not isinstance(where, Listed | ListedTimes):
        return
    listed = where.offsets if isinstance(where, Listed) else where.times
    there = {(log.topic, log.partition) for log in logs}
    for topic, partitions in listed.items():
        for partition in partitions:
            if (topic, partition) not in there:
                raise PipelineError(
                    f"option {option}: {topic}, partition {partition}, is not part of the query"
                )


def resolve(where: Where, log: Log, unlisted: int) -> int:
    """An offset of a log; `unlisted` if JSON names others only."""
    match where:
        case End.EARLIEST:
            return log.earliest
        case End.LATEST:
            return log.latest
        case Time(ms):
            return log.at[ms]
        case ListedTimes(listed):
            time = listed.get(log.topic, {}).get(log.partition)
            return unlisted if time is None else log.at[time]
        case Listed(offsets):
            offset = offsets.get(log.topic, {}).get(log.partition, unlisted)
            return {EARLIEST_MARK: log.earliest, LATEST_MARK: log.latest}.get(offset, offset)
