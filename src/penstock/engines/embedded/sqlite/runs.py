"""Rows of the table of entries: one entry, or a run of small ones.

A run is of entries that follow one another in one log, each with one message, all published at one time and to be
delivered at once. Its row has the id, the offset and the byte of the first; `count` is how many there are, `data` is their
data one after the other, and `sizes` how long each is. Where `sizes` is NULL the row is one entry. A row of the table costs
the writer as much as the making of a message; a run costs one row.
"""

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.model.entry import Entry, NewEntry

from .schema import DATA, ENTRIES_IN_ROW, ENTRY_BITS, ENTRY_MASK, first_id
from .work import Extent

# A trim frees a run as a whole, and who reads one of its entries reads it all: so it stays small.
RUN_ENTRIES_MAX: Final = 128
RUN_BYTES_MAX: Final = 32 * 1024
SMALL_BYTES: Final = 1024  # the data of an entry of a run; larger ones gain nothing

COLUMNS: Final = f"id, first_offset, count, publish_time, deliver_at, {DATA}, sizes"

# The row that holds an entry is the last that begins at or before it.
_ROW_OF: Final = f"""
    SELECT id, first_offset, {ENTRIES_IN_ROW}, first_byte, sizes FROM entries WHERE id <= ? ORDER BY id DESC LIMIT 1
"""  # noqa: S608


def rows_of(extent: Extent, entries: Iterable[NewEntry]) -> tuple[list[Any], Extent]:
    """The values of the rows that append `entries` to a log, and the log with them."""
    rows: list[Any] = []
    row = first_id(extent.ledger) + extent.next_entry
    offset, byte = extent.next_offset, extent.next_byte
    run: list[bytes] = []
    room = time = 0  # bytes that the run may still have, and when its entries were published
    for entry in entries:
        data = entry.data
        size = len(data)
        if run:
            if (
                size <= room
                and entry.publish_time == time
                and entry.count == 1
                and not entry.deliver_at
                and size <= SMALL_BYTES
            ):
                run.append(data)
                room = room - size if len(run) < RUN_ENTRIES_MAX else -1
                continue
            byte = _end_run(rows, row, offset, byte, time, run)
            row += len(run)
            offset += len(run)
            run = []
        if size <= SMALL_BYTES and entry.count == 1 and not entry.deliver_at:
            run.append(data)
            room, time = RUN_BYTES_MAX - size, entry.publish_time
            continue
        rows += (row, offset, entry.count, entry.publish_time, entry.deliver_at, byte, data, None)
        row += 1
        offset += entry.count
        byte += size
    if run:
        byte = _end_run(rows, row, offset, byte, time, run)
        row += len(run)
        offset += len(run)
    return rows, extent.until(row - first_id(extent.ledger), offset, byte)


def _end_run(rows: list[Any], row: int, offset: int, byte: int, time: int, run: list[bytes]) -> int:
    """Add the row of a run; returns where its data ends."""
    if len(run) == 1:
        rows += (row, offset, 1, time, 0, byte, run[0], None)
        return byte + len(run[0])
    data = b"".join(run)
    sizes = struct.pack(f"<{len(run)}I", *map(len, run))
    rows += (row, offset, len(run), time, 0, byte, data, sizes)
    return byte + len(data)


def read_sizes(sizes: bytes) -> tuple[int, ...]:
    """How long the data of each entry of a run is. Raises ValueError for what is no array of them."""
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


class Place(NamedTuple):
    """Where an entry lies: the id of its row, and the entry's own offset and byte in its log."""

    row: int
    offset: int
    byte: int


def place_of(connection: sqlite3.Connection, number: int) -> Place | None:
    """Where the entry with the id `number` lies; None when it is swept."""
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
