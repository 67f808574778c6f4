"""The statements that open, append to, trim and delete logs.

Those that only write are given back to be executed together; the others are executed here, within the
transaction that is open.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.model.entry import AppendResult
from penstock.model.errors import ErrorKind, PenstockError

from .extent import Extent
from .rows import RowStatement, Statement, listed
from .schema import DATA, ENTRY_MASK, LEDGERS_MAX, STAGING, first_id
from .staged import Changes, Staged
from .work import Append, Delete, ForgetProducers, Open, Trim

_LOGS: Final = RowStatement.insert("logs", 8)
ENTRIES: Final = RowStatement.insert("entries", 7)
_PRODUCERS: Final = RowStatement.insert(
    "producers",
    3,
    "ON CONFLICT DO UPDATE SET sequence_id = excluded.sequence_id WHERE excluded.sequence_id > sequence_id",
)

_ALL: Final = f"""
    SELECT topic, ledger, first_entry, logs.first_offset, logs.first_byte, next_entry, next_offset, next_byte,
        id, entries.first_offset + count, entries.first_byte + length({DATA})
    FROM logs LEFT JOIN entries ON id = (
        SELECT id FROM entries
        WHERE id >= ledger << 40 AND id < (ledger + 1) << 40
        ORDER BY id DESC LIMIT 1
    )
"""  # noqa: S608
_FIND: Final = f"{_ALL} WHERE topic IN ({{}})"
_FIND_PRODUCERS: Final = "SELECT ledger, name, sequence_id FROM producers WHERE ledger IN ({})"
_FORGET: Final = "DELETE FROM producers WHERE name IN ({}) AND ledger = ?"
_TRIM: Final = """
    UPDATE logs SET first_entry = ?, first_offset = ?, first_byte = ?,
        next_entry = ?, next_offset = ?, next_byte = ?
    WHERE ledger = ?
"""
_DELETE: Final = (
    "DELETE FROM logs WHERE ledger = ?",
    "DELETE FROM producers WHERE ledger = ?",
    "DELETE FROM cursors WHERE ledger = ?",
    "DELETE FROM cursor_chunks WHERE ledger = ?",
)


def append(works: Sequence[Append], staged: Staged) -> Iterator[Statement]:
    """Place all entries, and give the statements that store them and the producers' sequence ids."""
    rows: list[Any] = []
    producers: dict[tuple[int, str], int] = {}
    for work in works:
        ledger = work.ledger
        extent = staged.extent(ledger)
        if extent is None:
            staged.refuse(work, ledger)
            continue
        base = first_id(ledger)
        placed = AppendResult(extent.next_entry, extent.next_offset)
        row, offset, byte = base + placed.entry_id, placed.offset, extent.next_byte
        for entry in work.entries:
            data = entry.data
            rows += (row, offset, entry.count, entry.publish_time, entry.deliver_at, byte, data)
            row += 1
            offset += entry.count
            byte += len(data)
            if entry.producer and entry.sequence_id >= 0:
                key = (ledger, entry.producer)
                producers[key] = max(entry.sequence_id, producers.get(key, 0))
        staged.changed[ledger] = extent.until(row - base, offset, byte)
        staged.outcomes.append((work, placed))
    yield from ENTRIES.over(rows)
    yield from _PRODUCERS.over([value for key, number in producers.items() for value in (*key, number)])


def open_logs(connection: sqlite3.Connection, works: Sequence[Open], staged: Staged) -> None:
    """Find the logs of all topics, and create those that are missing."""
    found = _find(connection, [work.topic for work in works], staged)
    rows: list[Any] = []
    for work in works:
        if work.topic not in found:
            extent = found[work.topic] = _create(staged)
            rows += (extent.ledger, work.topic, 0, 0, 0, 0, 0, 0)
    for statement in _LOGS.over(rows):
        connection.execute(*statement)
    if rows:
        connection.execute("UPDATE next_ledger SET ledger = ?", (staged.next_ledger,))
    producers: dict[int, dict[str, int]] = {extent.ledger: {} for extent in found.values()}
    for query, ledgers in listed(_FIND_PRODUCERS, list(producers)):
        for ledger, name, sequence_id in connection.execute(query, ledgers):
            producers[ledger][name] = sequence_id
    for work in works:
        extent = found[work.topic]
        staged.outcomes.append((work, extent.state(dict(producers[extent.ledger]))))


def _find(connection: sqlite3.Connection, topics: Sequence[str], staged: Staged) -> dict[str, Extent]:
    """The logs among `topics` that there are."""
    found: dict[str, Extent] = {}
    for query, names in listed(_FIND, topics):
        for topic, ledger, *numbers, last, offset, byte in connection.execute(query, names):
            extent = staged.extent(ledger)
            if extent is None:
                extent = staged.changed[ledger] = _extent(ledger, numbers, last, offset, byte)
            found[topic] = extent
    return found


def read_again(connection: sqlite3.Connection, extents: dict[int, Extent]) -> Changes:
    """Let the logs that are open be as the file has them; returns what was otherwise."""
    found = {
        ledger: _extent(ledger, numbers, last, offset, byte)
        for _, ledger, *numbers, last, offset, byte in connection.execute(_ALL)
    }
    changed = {
        ledger: found.get(ledger)
        for ledger, known in extents.items()
        if ledger != STAGING and found.get(ledger) != known
    }
    for ledger, extent in changed.items():
        if extent is None:
            del extents[ledger]
        else:
            extents[ledger] = extent
    return changed


def _extent(ledger: int, numbers: Sequence[int], last: int | None, offset: int, byte: int) -> Extent:
    extent = Extent(ledger, *numbers)
    # The row knows of the end at the last trim only; an older entry is one not yet swept.
    if last is not None and last & ENTRY_MASK >= extent.next_entry:
        extent = extent.until((last & ENTRY_MASK) + 1, offset, byte)
    return extent


def _create(staged: Staged) -> Extent:
    ledger = staged.next_ledger
    if ledger >= LEDGERS_MAX:
        raise PenstockError(ErrorKind.UNAVAILABLE, f"all {LEDGERS_MAX} ledgers of the storage are used up")
    staged.next_ledger += 1
    extent = staged.changed[ledger] = Extent(ledger)
    return extent


def trim(connection: sqlite3.Connection, work: Trim, staged: Staged) -> None:
    """Move a log's beginning; the sweeps free the room behind it in small portions."""
    extent = staged.extent(work.ledger)
    if extent is None or work.before_entry <= extent.first_entry:
        staged.outcomes.append((work, 0))
        return
    base = first_id(work.ledger)
    first, offset, byte = extent.next_entry, extent.next_offset, extent.next_byte
    if work.before_entry < first:
        first = work.before_entry
        query = "SELECT first_offset, first_byte FROM entries WHERE id = ?"
        offset, byte = connection.execute(query, (base + first,)).fetchone()
    left = extent.since(first, offset, byte)
    ends = (left.next_entry, left.next_offset, left.next_byte)
    connection.execute(_TRIM, (first, offset, byte, *ends, work.ledger))
    let_go(connection, base + extent.first_entry, base + first, staged)
    staged.outcomes.append((work, byte - extent.first_byte))
    staged.changed[work.ledger] = left


def forget_producers(connection: sqlite3.Connection, work: ForgetProducers) -> None:
    """Forget the sequence ids of producers."""
    for query, names in listed(_FORGET, work.names):
        connection.execute(query, (*names, work.ledger))


def delete(connection: sqlite3.Connection, work: Delete, staged: Staged) -> None:
    """Delete a log and all that belongs to it; of its entries, the sweeps free the room."""
    extent = staged.extent(work.ledger)
    staged.outcomes.append((work, None))
    if extent is None:
        return
    for statement in _DELETE:
        connection.execute(statement, (work.ledger,))
    base = first_id(work.ledger)
    let_go(connection, base + extent.first_entry, base + extent.next_entry, staged)
    staged.changed[work.ledger] = None


def let_go(connection: sqlite3.Connection, start: int, until: int, staged: Staged) -> None:
    if start < until:
        connection.execute("INSERT INTO sweeps VALUES (?, ?)", (start, until))
        staged.sweeps.append((start, until))
