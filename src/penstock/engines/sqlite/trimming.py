"""Trimming and deleting logs, and freeing the room of their entries.

A trim only moves a log's beginning. The entries go afterwards, a slice a transaction, so that a trim of
millions neither holds up the appends nor swells the write-ahead log. What is still to go survives a restart.
"""

import sqlite3
from collections import deque
from typing import Final

import msgspec

from .runs import place_of
from .schema import ENTRIES_IN_ROW, first_id
from .work import Extent, Transaction

SLICE_ROWS: Final = 1024
SLICE_BYTES: Final = 8 << 20

_TRIM: Final = """
    UPDATE logs SET first_entry = ?2, first_offset = ?3, first_byte = ?4,
        next_entry = ?5, next_offset = ?6, next_byte = ?7
    WHERE ledger = ?1
"""
_CUT: Final = f"""
    SELECT max(after) FROM (
        SELECT id + {ENTRIES_IN_ROW} AS after FROM entries
        WHERE id >= :start AND id < :until
            AND first_byte <= :bytes + (SELECT first_byte FROM entries WHERE id = :start)
        ORDER BY id LIMIT :rows
    )
"""  # noqa: S608
# What was committed from a stage has its data in the staged entry.
_STAGED: Final = """
    DELETE FROM entries WHERE id IN (
        SELECT data FROM entries WHERE id >= ? AND id < ? AND typeof(data) = 'integer'
    )
"""


def trim(transaction: Transaction, ledger: int, before_entry: int) -> int:
    """Move a log's beginning; returns the bytes of data before it."""
    extent = transaction.extent(ledger)
    if extent is None or before_entry <= extent.first_entry:
        return 0
    first, offset, byte = extent.next_entry, extent.next_offset, extent.next_byte
    until = first_id(ledger) + first
    if before_entry < first:
        first = before_entry
        place = place_of(transaction.connection, first_id(ledger) + first)
        assert place is not None, "ids of a log have no gaps"
        until, offset, byte = place
    left = Extent(ledger, first, offset, byte, extent.next_entry, extent.next_offset, extent.next_byte)
    transaction.connection.execute(_TRIM, msgspec.structs.astuple(left))
    transaction.free(_first_row(transaction, extent), until)
    transaction.changed[ledger] = left
    return byte - extent.first_byte


def delete(transaction: Transaction, ledger: int) -> None:
    """Delete a log and all that belongs to it."""
    extent = transaction.extent(ledger)
    if extent is None:
        return
    for table in ("logs", "producers", "cursors", "cursor_chunks"):
        transaction.connection.execute(f"DELETE FROM {table} WHERE ledger = ?", (ledger,))  # noqa: S608
    transaction.free(_first_row(transaction, extent), first_id(ledger) + extent.next_entry)
    transaction.changed[ledger] = None


def _first_row(transaction: Transaction, extent: Extent) -> int:
    """The id of the row that holds a log's first entry. What is swept are whole rows: of a run some of which was trimmed,
    the rest keeps the row."""
    first = first_id(extent.ledger) + extent.first_entry
    place = place_of(transaction.connection, first)
    return first if place is None else place.row


class Sweeps:
    """The ranges of entry ids that are waiting, each `(start, until)`; swept from the low end up."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.waiting: deque[tuple[int, int]] = deque(
            connection.execute("SELECT start, until FROM sweeps ORDER BY start")
        )

    def sweep(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Delete one slice of the first range, within the transaction that is open; returns what is left."""
        start, until = self.waiting[0]
        bounds = {"start": start, "until": until, "bytes": SLICE_BYTES, "rows": SLICE_ROWS}
        cut = connection.execute(_CUT, bounds).fetchone()[0] or until
        connection.execute(_STAGED, (start, cut))
        connection.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start, cut))
        connection.execute("DELETE FROM sweeps WHERE start = ?", (start,))
        if cut < until:
            connection.execute("INSERT INTO sweeps VALUES (?, ?)", (cut, until))
        return cut, until

    def swept(self, left: tuple[int, int]) -> None:
        """The slice is committed."""
        self.waiting.popleft()
        if left[0] < left[1]:
            self.waiting.appendleft(left)
