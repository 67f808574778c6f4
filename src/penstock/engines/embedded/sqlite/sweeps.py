"""Freeing the room of entries that were let go of.

A trim only moves a log's beginning. The entries go afterwards, a slice a transaction, so that a trim of
millions neither holds up the appends nor swells the write-ahead log. What is still to go survives a restart.
"""

import sqlite3
from collections import deque
from typing import Final

SLICE_ENTRIES: Final = 1024
SLICE_BYTES: Final = 8 << 20

_CUT: Final = """
    SELECT max(id) FROM (
        SELECT id FROM entries
        WHERE id >= :start AND id < :until
            AND first_byte <= :bytes + (SELECT first_byte FROM entries WHERE id = :start)
        ORDER BY id LIMIT :entries
    )
"""

# What was committed from a stage has its data in the staged entry.
_HELD: Final = """
    DELETE FROM entries WHERE id IN (
        SELECT data FROM entries WHERE id >= ? AND id < ? AND typeof(data) = 'integer'
    )
"""

Range = tuple[int, int]


class Sweeps:
    """The ranges of entry ids that are waiting, each `(start, until)`; swept from the low end up."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.waiting: deque[Range] = deque(
            connection.execute("SELECT start, until FROM sweeps ORDER BY start")
        )

    def sweep(self, connection: sqlite3.Connection) -> Range:
        """Delete one slice of the first range, within the transaction that is open; returns what is left."""
        start, until = self.waiting[0]
        bounds = {"start": start, "until": until, "bytes": SLICE_BYTES, "entries": SLICE_ENTRIES}
        last = connection.execute(_CUT, bounds).fetchone()[0]
        cut = until if last is None else last + 1
        connection.execute(_HELD, (start, cut))
        connection.execute("DELETE FROM entries WHERE id >= ? AND id < ?", (start, cut))
        connection.execute("DELETE FROM sweeps WHERE start = ?", (start,))
        if cut < until:
            connection.execute("INSERT INTO sweeps VALUES (?, ?)", (cut, until))
        return cut, until

    def put_in_force(self, left: Range) -> None:
        """The slice is committed."""
        self.waiting.popleft()
        if left[0] < left[1]:
            self.waiting.appendleft(left)
