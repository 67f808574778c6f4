"""Rows of the table of entries: one entry, or a run of small ones.

A run is of entries that follow one another in one log, each with one message, all published at one time and to be
delivered at once. Its row has the id, the offset and the byte of the first; `count` is how many there are, `data` is their
data one after the other, and `sizes` how long each is. If `sizes` is NULL the row is one entry. A row of the table costs
the writer as much as the making of a message; a run costs one row.
"""

import sqlite3
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.model.entry import Entry, EntryRun, NewEntry, NewRun

from .schema import DATA, ENTRIES_IN_ROW, ENTRY_BITS, ENTRY_MASK, first_id
from .work import Extent

# A trim frees a run as a whole, and a read of one entry reads the whole run: so runs stay small.
RUN_ENTRIES_MAX: Final = 128
RUN_BYTES_MAX: Final = 32 * 1024
SMALL_BYTES: Final = 1024  # the data of an entry of a run; larger ones gain nothing

COLUMNS: Final = f"id, first_offset, count, publish_time, deliver_at, {DATA}, sizes"

# The row that holds an entry is the last that begins at or before it.
_ROW_OF: Final = f"""
    SELECT id, first_offset, {ENTRIES_IN_ROW}, first_byte, sizes FROM entries WHERE id <= ? ORDER BY id DESC LIMIT 1
"""  # noqa: S608


class Rows:
    """The rows appended to one log: their `values` one after the other, and the resulting log."""

    def __init__(self, extent: Extent) -> None:
        self.values: list[Any] = []
        self._extent = extent
        self._row = first_id(extent.ledger) + extent.next_entry
        self._offset, self._byte = extent.next_offset, extent.next_byte
        self._run: list[bytes] = []  # data of entries that wait for their row
        self._room = 0  # bytes that the run may have more
        self._time = 0  # when its entries were published

    def add(self, entries: Sequence[NewEntry]) -> None:
        """Append entries; small ones wait for others that may share their row."""
        if type(entries) is NewRun and self._add_run(entries):
            return
        for entry in entries:
            data, time = entry.data, entry.publish_time
            size = len(data)
            if size > SMALL_BYTES or entry.count != 1 or entry.deliver_at:
                self._end_run()
                self._add_row(1, (entry.count, time, entry.deliver_at, self._byte, data, None))
                continue
            self._make_room(1, size, time)
            self._run.append(data)
            self._room -= size

    def end(self) -> Extent:
        """Every entry has its row then; returns the log with all of them."""
        self._end_run()
        return self._extent.until(self._row - first_id(self._extent.ledger), self._offset, self._byte)

    def _add_run(self, entries: NewRun) -> bool:
        """Append entries that may share a row; False if they may not."""
        data, size = entries.data, entries.size_bytes
        if not 0 < len(data) <= RUN_ENTRIES_MAX or size > RUN_BYTES_MAX or max(map(len, data)) > SMALL_BYTES:
            return False
        self._make_room(len(data), size, entries.publish_time)
        self._run += data
        self._room -= size
        return True

    def _make_room(self, entries: int, size: int, time: int) -> None:
        """Begin another run if so many entries cannot join the last."""
        if time != self._time or size > self._room or len(self._run) + entries > RUN_ENTRIES_MAX:
            self._end_run()
            self._time, self._room = time, RUN_BYTES_MAX

    def _end_run(self) -> None:
        run, self._run, self._room = self._run, [], 0
        if len(run) == 1:
            self._add_row(1, (1, self._time, 0, self._byte, run[0], None))
        elif run:
            sizes = struct.pack(f"<{len(run)}I", *map(len, run))
            self._add_row(len(run), (len(run), self._time, 0, self._byte, b"".join(run), sizes))

    def _add_row(self, entries: int, rest: tuple[int, int, int, int, bytes, bytes | None]) -> None:
        self.values += (self._row, self._offset, *rest)
        self._row += entries
        self._offset += rest[0]
        self._byte += len(rest[4])


def read_sizes(sizes: bytes) -> tuple[int, ...]:
    """The size of each entry of a run. Raises ValueError for anything but an array of sizes."""
    if len(sizes) % 4:
        raise ValueError(f"{len(sizes)} bytes of sizes")
    return struct.unpack(f"<{len(sizes) // 4}I", sizes)


def entries_of(row: Sequence[Any]) -> list[Entry]:
    """The entries of a row, of which `COLUMNS` were selected."""
    number, offset, count, publish_time, deliver_at, data, sizes = row
    ledger, entry_id = number >> ENTRY_BITS, number & ENTRY_MASK
    if sizes is None:
        return [Entry(ledger, entry_id, offset, count, publish_time, deliver_at, data)]
    made: list[Entry] = []
    at = 0
    for size in read_sizes(sizes):
        made.append(Entry(ledger, entry_id, offset, 1, publish_time, deliver_at, data[at : at + size]))
        entry_id += 1
        offset += 1
        at += size
    return made


def run_of(row: Sequence[Any], start: int) -> Entry | EntryRun | None:
    """What a row of `COLUMNS` holds from the entry with the id `start` on; None if that is nothing."""
    number, offset, count, publish_time, deliver_at, data, sizes = row
    before = max(0, start - number)
    if before >= (1 if sizes is None else count):
        return None
    ledger, entry_id = number >> ENTRY_BITS, number & ENTRY_MASK
    if sizes is None:
        return Entry(ledger, entry_id, offset, count, publish_time, deliver_at, data)
    if before:
        data, sizes = data[sum(read_sizes(sizes)[:before]) :], sizes[4 * before :]
    return EntryRun(ledger, entry_id + before, offset + before, sizes, data)


class Place(NamedTuple):
    """The location of an entry: the id of its row, and the entry's offset and byte position in its log."""

    row: int
    offset: int
    byte: int


def place_of(connection: sqlite3.Connection, number: int) -> Place | None:
    """The location of the entry with the id `number`; None if it is swept."""
    found = connection.execute(_ROW_OF, (number,)).fetchone()
    if found is None:
        return None
    row, offset, entries, byte, sizes = found
    if number >= row + entries:
        return None
    before = number - row
    return (
        Place(row, offset + before, byte + sum(read_sizes(sizes)[:before]))
        if before
        else Place(row, offset, byte)
    )
