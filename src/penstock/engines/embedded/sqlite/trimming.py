"""Trimming and deleting logs, and freeing the room of their entries.

A trim only moves a log's beginning. The entries go afterwards, a slice a transaction, so that a trim of
millions neither holds up the appends nor swells the write-ahead log. What is still to go survives a restart.
"""

import sqlite3
from collections import deque
from typing import Final

import msgspec

from .schema import first_id
from .work import Extent, Transaction

SLICE_ENTRIES: Final = 1024
SLICE_BYTES: Final = 8 << 20

_TRIM: Final = """
    UPDATE logs SET first_entry = ?2, first_offset = ?3, first_byte = ?4,
        next_entry = ?5, next_offset = ?6, next_byte = ?7
    WHERE ledger = ?1
"""
_CUT: Final = """
    SELECT max(id) FROM (
        SELECT id FROM entries
        WHERE id >= :start AND id < :until
            AND first_byte <= :bytes + (SELECT first_byte FROM entries WHERE id = :start)
        ORDER BY id LIMIT :entries
    )
"""
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
    base = first_id(ledger)
    first, offset, byte = extent.next_entry, extent.next_offset, extent.next_byte
    if before_entry < first:
        first = before_entry
        query = "SELECT first_offset, first_byte FROM entries WHERE id = ?"
        offset, byte = transaction.connection.execute(query, (base + first,)).fetchone()
    left = Extent(ledger, first, offset, byte, extent.next_entry, extent.next_offset, extent.next_byte)
    transaction.connection.execute(_TRIM, msgspec.structs.astuple(left))
    transaction.free(base + extent.first_entry, base + first)
    transaction.changed[ledger] = left
    return byte - extent.first_byte


def delete(transaction: Transaction, ledger: int) -> None:
    """Delete a log and all that belongs to it."""
    extent = transaction.extent(ledger)
    if extent is None:
        return
    for table in ("logs", "producers", "cursors", "cursor_chunks"):
        transaction.connection.execute(f"DELETE FROM {table} WHERE ledger = ?", (ledger,))  # noqa: S608
    base = first_id(ledger)
    transaction.free(base + extent.first_entry, base + extent.next_entry)
    transaction.changed[ledger] = None


class Sweeps:
    """The ranges of entry ids that are waiting, each `(start, until)`; swept from the low end up."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.waiting: deque[tuple[int, int]] = deque(
            connection.execute("SELECT start, until FROM sweeps ORDER BY start")
        )

    def sweep(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Delete one slice of the first range, within the transaction that is open; returns what is left."""
        start, until = self.waiting[0]
        bounds = {"start": start, "until": until, "bytes": SLICE_BYTES, "entries": SLICE_ENTRIES}
        last = connection.execute(_CUT, bounds).fetchone()[0]
        cut = until if last is None else last + 1
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
