"""The logs of a storage and what refers to their offsets: entries without gaps, cursors, stages and commits."""

import sqlite3
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

from penstock.engines.subscription.offsets import CHUNK
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import FORGOTTEN, Span

from .runs import read_sizes
from .schema import DATA, ENTRY_BITS, ENTRY_MASK, STAGING, first_id

PROGRESS_EVERY: Final = 1024  # entries

Found = tuple[str, str]  # the place, and what is wrong

_ENTRIES: Final = f"""
    SELECT id, first_offset, count, publish_time, deliver_at, first_byte, {DATA}, {{sizes}}
    FROM entries WHERE id < ? ORDER BY id
"""  # noqa: S608

_STAGES: Final = "SELECT start, writer, batch, stage, part, ledger, messages, size_bytes, numbers FROM stages"
_STAGED: Final = "SELECT count(*), coalesce(sum(length(data)), 0) FROM entries WHERE id >= ? AND id < ?"
_COMMITS: Final = """
    SELECT writer, topics, batch, messages, spans, EXISTS (SELECT 1 FROM writers WHERE name = writer) FROM commits
"""


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

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> dict[int, Self]:
        """All rows by their ledgers."""
        query = """
            SELECT ledger, topic, first_entry, first_offset, first_byte, next_entry, next_offset, next_byte FROM logs
        """
        return {row[0]: cls(*row) for row in connection.execute(query)}


def check_logs(connection: sqlite3.Connection, logs: Mapping[int, LogRow]) -> Iterator[Found]:
    """Look at where each log begins and ends, and at the number of the next ledger."""
    next_ledger = connection.execute("SELECT ledger FROM next_ledger").fetchone()
    if next_ledger is None:
        yield "the file", "the number of the next ledger is missing"
    for log in logs.values():
        if next_ledger is not None and log.ledger >= next_ledger[0]:
            yield (
                log.topic,
                f"ledger {log.ledger} would be given to another topic; the next is {next_ledger[0]}",
            )
        starts = (log.first_entry, log.first_offset, log.first_byte)
        ends = (log.next_entry, log.next_offset, log.next_byte)
        trimmed = ends != (0, 0, 0)  # the end is noted by trims only
        if min(starts) < 0 or (trimmed and any(s > e for s, e in zip(starts, ends, strict=True))):
            yield log.topic, f"its log begins at {starts} and ends at {ends}"


class _Sweeps:
    """Ranges of ids of deleted entries: what is still there does not count."""

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
    progress: Callable[[int], None],
    *,
    runs: bool = True,
) -> Iterator[Found]:
    """Read every entry once, in order; the ends of `logs` are set on the way. `runs`: a row may hold several, which those of
    older versions do not."""
    sweeps = _Sweeps(connection)
    strangers: set[int] = set()
    query = _ENTRIES.format(sizes="sizes" if runs else "NULL")
    for done, row in enumerate(connection.execute(query, (first_id(STAGING),))):
        if done % PROGRESS_EVERY == 0:
            progress(done)
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
        yield from _check_row(log, number & ENTRY_MASK, row, decode)
    for log in logs.values():
        noted = Point(log.next_entry, log.next_offset, log.next_byte)
        if log.end < noted and log.entries:
            yield (
                log.topic,
                f"its last entries are missing: it ends at {log.end.entry}, and was at {noted.entry}",
            )
        elif log.end < noted and log.first_entry != log.next_entry:
            yield log.topic, f"entries {log.first_entry} to {log.next_entry - 1} are missing"


def _check_row(
    log: LogRow, number: int, row: tuple[Any, ...], decode: Callable[[Entry], None]
) -> Iterator[Found]:
    """Look at a row: an entry, or a run of them, the first of which a trim may have deleted."""
    _, offset, count, publish_time, deliver_at, byte, data, packed = row
    if packed is None:
        yield from _check_entry(log, number, row[1:-1], decode)
        return
    whole = isinstance(packed, bytes) and isinstance(data, bytes) and not len(packed) % 4
    sizes = read_sizes(packed) if whole else ()
    if not whole or (len(sizes), sum(sizes)) != (count, len(data)):
        place = f"{log.topic}, run of entries from {number} on"
        yield (
            place,
            f"its {count} entries cannot be told apart: it has {len(sizes)} sizes of {sum(sizes)} bytes",
        )
        log.end = Point(number + count, offset + count, byte + (len(data) if isinstance(data, bytes) else 0))
        return
    begun = number < log.first_entry < number + count
    at = 0
    for size in sizes:
        if not (begun and number < log.first_entry):
            entry = offset, 1, publish_time, deliver_at, byte, data[at : at + size]
            yield from _check_entry(log, number, entry, decode)
        number, offset, byte, at = number + 1, offset + 1, byte + size, at + size


def _check_entry(
    log: LogRow, number: int, row: tuple[Any, ...], decode: Callable[[Entry], None]
) -> Iterator[Found]:
    offset, count, publish_time, deliver_at, byte, data = row
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


def check_cursors(connection: sqlite3.Connection, logs: Mapping[int, LogRow]) -> Iterator[Found]:
    """Look at every cursor, the chunks beyond its mark, and the producers' sequence ids."""
    marks: dict[tuple[int, str], int] = {}
    for ledger, name, mark in connection.execute("SELECT ledger, subscription, mark FROM cursors"):
        marks[ledger, name] = mark
        log = logs.get(ledger)
        if log is None:
            yield f"subscription {name!r}", f"it is of ledger {ledger}, which there is not"
        elif not 0 <= mark <= log.end.offset:
            yield (
                f"{log.topic}, subscription {name!r}",
                f"its mark is {mark}, and the log ends at {log.end.offset}",
            )
    chunks = "SELECT ledger, subscription, chunk, bits FROM cursor_chunks"
    for ledger, name, chunk, bits in connection.execute(chunks):
        log, found = logs.get(ledger), marks.get((ledger, name))
        place = f"{log.topic if log else f'ledger {ledger}'}, subscription {name!r}, chunk {chunk}"
        if found is None:
            yield place, "there is no cursor that it belongs to"
        elif len(bits) > CHUNK // 8 or not any(bits):
            yield place, f"it has {len(bits)} bytes" + ("" if any(bits) else ", none of them set")
        elif (chunk + 1) * CHUNK <= found:
            yield place, f"it lies below the mark, {found}"
        else:
            last = chunk * CHUNK + int.from_bytes(bits, "little").bit_length() - 1
            if log is not None and last >= log.end.offset:
                yield place, f"offset {last} is acknowledged, and the log ends at {log.end.offset}"
    for ledger, name, sequence_id in connection.execute("SELECT ledger, name, sequence_id FROM producers"):
        if ledger not in logs:
            yield f"producer {name!r}", f"it is of ledger {ledger}, which there is not"
        elif sequence_id < 0:
            yield f"{logs[ledger].topic}, producer {name!r}", f"its sequence id is {sequence_id}"


def check_stages(connection: sqlite3.Connection, logs: Mapping[int, LogRow]) -> Iterator[Found]:
    """Look at every run of staged entries, and at every last commit."""
    for start, writer, batch, stage, part, ledger, *counted, blob in connection.execute(_STAGES):
        place = f"writer {writer!r}, batch {batch}, stage {stage!r}, part {part}"
        if ledger not in logs:
            continue  # its topic was deleted: the commit will say so
        numbers = array("q", blob[: len(blob) // 8 * 8])
        if len(blob) % 24 or [sum(numbers[0::3]), sum(numbers[1::3])] != counted:
            yield (
                place,
                f"it says that it has {counted[0]} messages in {counted[1]} bytes, and its entries differ",
            )
            continue
        count = len(numbers) // 3
        found = connection.execute(_STAGED, (start, start + count)).fetchone()
        if found != (count, counted[1]):
            yield (
                place,
                f"of its {count} entries with {counted[1]} bytes, {found[0]} with {found[1]} bytes are there",
            )
    for row in connection.execute(_COMMITS):
        yield from _check_commit(row)


def _check_commit(row: tuple[Any, ...]) -> Iterator[Found]:
    writer, topics, batch, messages, blob, owned = row
    place = f"writer {writer!r}, commit to {topics or 'all topics'}"
    if not owned:
        yield place, "there is no such writer"
    if batch < FORGOTTEN:
        yield place, f"its batch is {batch}"
    try:
        names = msgspec.json.decode(topics, type=list[str]) if topics else []
        if names != sorted({str(TopicName.parse(name).base) for name in names}):
            yield place, "its topics are no ordered set of full names"
        spans = msgspec.json.decode(blob, type=list[Span])
    except (PenstockError, msgspec.DecodeError) as error:
        yield place, f"it cannot be read: {error}"
        return
    if sum(span.messages for span in spans) != messages:
        yield place, f"it says that it has {messages} messages, and its spans differ"
