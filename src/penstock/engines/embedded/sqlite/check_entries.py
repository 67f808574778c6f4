"""The entries of a storage: in order, without gaps, each whole."""

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.entry import Entry
from penstock.model.errors import PenstockError

from .schema import DATA, ENTRY_BITS, ENTRY_MASK, STAGING, first_id

TOLD_EVERY: Final = 1024  # entries

Found = tuple[str, str]  # the place, and what is wrong

_ENTRIES: Final = f"""
    SELECT id, first_offset, count, publish_time, deliver_at, first_byte, {DATA}
    FROM entries WHERE id < ? ORDER BY id
"""  # noqa: S608


class Point(NamedTuple):
    """A place in a log."""

    entry: int
    offset: int
    byte: int


class LogRow(msgspec.Struct):
    """A log as its row has it, and, once its entries were read, where it really ends."""

    ledger: int
    topic: str
    first_entry: int
    first_offset: int
    first_byte: int
    next_entry: int
    next_offset: int
    next_byte: int
    entries: int = 0
    end: Point = Point(0, 0, 0)

    def __post_init__(self) -> None:
        self.end = Point(self.first_entry, self.first_offset, self.first_byte)


class _Sweeps:
    """Ranges of ids that are let go of: whatever is there does not count."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._ranges = connection.execute("SELECT start, until FROM sweeps ORDER BY start").fetchall()
        self._starts = [start for start, _ in self._ranges]

    def has(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ranges[at][1]


def check_entries(
    connection: sqlite3.Connection,
    logs: dict[int, LogRow],
    decode: Callable[[Entry], None],
    told: Callable[[int], None],
) -> Iterator[Found]:
    """Read every entry once, in order; the ends of `logs` are set on the way."""
    sweeps = _Sweeps(connection)
    strangers: set[int] = set()
    for done, row in enumerate(connection.execute(_ENTRIES, (first_id(STAGING),))):
        if done % TOLD_EVERY == 0:
            told(done)
        number = row[0]
        ledger = number >> ENTRY_BITS
        log = logs.get(ledger)
        if sweeps.has(number):
            continue
        if log is None:
            if ledger not in strangers:
                strangers.add(ledger)
                yield f"ledger {ledger}", "there are entries, and no log that they belong to"
            continue
        yield from _check_entry(log, number & ENTRY_MASK, row, decode)
    for log in logs.values():
        noted = Point(log.next_entry, log.next_offset, log.next_byte)
        if log.end < noted and log.entries:
            yield (
                log.topic,
                f"its last entries are missing: it ends at {log.end.entry}, and was at {noted.entry}",
            )
        elif log.end < noted and log.first_entry != log.next_entry:
            yield log.topic, f"entries {log.first_entry} to {log.next_entry - 1} are missing"


def _check_entry(
    log: LogRow, number: int, row: tuple[Any, ...], decode: Callable[[Entry], None]
) -> Iterator[Found]:
    _, offset, count, publish_time, deliver_at, byte, data = row
    place = f"{log.topic}, entry {number}"
    if number < log.first_entry:
        yield place, f"it lies before the log's first entry, {log.first_entry}"
        return
    if number != log.end.entry:
        yield place, f"entries {log.end.entry} to {number - 1} before it are missing"
    elif (offset, byte) != log.end[1:]:
        yield (
            place,
            (
                f"it begins at offset {offset} and byte {byte}, and the one before ends at "
                f"offset {log.end.offset} and byte {log.end.byte}"
            ),
        )
    if not isinstance(data, bytes):
        yield place, "its data, which was staged, is missing"
        data = b""
    if count < 1:
        yield place, f"it says that it has {count} messages"
    log.entries += 1
    log.end = Point(number + 1, offset + max(count, 0), byte + len(data))
    if data:
        try:
            decode(Entry(log.ledger, number, offset, count, publish_time, deliver_at, data))
        except PenstockError as error:
            yield place, error.message
