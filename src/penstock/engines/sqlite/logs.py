"""The statements that open logs, append to them, trim and delete them, and those of cursors and documents.

Those that only write are given back to be executed together, several saves of the same cursor or document as one; the others
are executed here, within the transaction that is open.
"""

import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.engines.core.ports import CursorChange, no_log
from penstock.model.entry import AppendResult, NewRun
from penstock.model.errors import ErrorKind, PenstockError

from .runs import Rows, place_of
from .schema import DATA, ENTRIES_IN_ROW, LEDGERS_MAX, STAGING, first_id
from .work import (
    Append,
    Extent,
    ExtentChanges,
    Open,
    RowStatement,
    SaveCursors,
    SaveMeta,
    Statement,
    Transaction,
    apply,
    listed,
)

_CURSORS: Final = RowStatement.insert(
    "cursors",
    4,
    "ON CONFLICT DO UPDATE SET mark = excluded.mark, properties = coalesce(excluded.properties, properties)",
)
_CHUNKS: Final = RowStatement.insert("cursor_chunks", 4, "ON CONFLICT DO UPDATE SET bits = excluded.bits")
_CHUNKS_DROPPED: Final = RowStatement.delete("cursor_chunks", ("ledger", "subscription", "chunk"))
_DOCUMENTS: Final = RowStatement.insert("meta", 3, "ON CONFLICT DO UPDATE SET document = excluded.document")
_DOCUMENTS_DELETED: Final = RowStatement.delete("meta", ("kind", "key"))
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
# An entry committed from a stage has its data in the staged entry.
_STAGED: Final = """
    DELETE FROM entries WHERE id IN (
        SELECT data FROM entries WHERE id >= ? AND id < ? AND typeof(data) = 'integer'
    )
"""
_LOGS: Final = RowStatement.insert("logs", 8)
ENTRIES: Final = RowStatement.insert("entries", 8)
_PRODUCERS: Final = RowStatement.insert(
    "producers",
    3,
    "ON CONFLICT DO UPDATE SET sequence_id = excluded.sequence_id WHERE excluded.sequence_id > sequence_id",
)
_ALL: Final = f"""
    SELECT topic, ledger, first_entry, logs.first_offset, logs.first_byte, next_entry, next_offset, next_byte,
        id + {ENTRIES_IN_ROW}, entries.first_offset + count, entries.first_byte + length({DATA})
    FROM logs LEFT JOIN entries ON id = (
        SELECT id FROM entries
        WHERE id >= ledger << 40 AND id < (ledger + 1) << 40
        ORDER BY id DESC LIMIT 1
    )
"""  # noqa: S608
_FIND: Final = f"{_ALL} WHERE topic IN ({{}})"
_FIND_PRODUCERS: Final = "SELECT ledger, name, sequence_id FROM producers WHERE ledger IN ({})"
_FORGET: Final = "DELETE FROM producers WHERE name IN ({}) AND ledger = ?"


def save_cursors(works: Sequence[SaveCursors], transaction: Transaction) -> Iterator[Statement]:
    """Of each cursor the last mark, the last properties, and of each chunk the last bits."""
    marks: dict[tuple[int, str], int] = {}
    properties: dict[tuple[int, str], bytes | None] = {}
    chunks: dict[tuple[int, str, int], bytes | None] = {}
    for work in works:
        missing = next((c.ledger for c in work.changes if transaction.extent(c.ledger) is None), None)
        if missing is not None:
            transaction.outcomes.append((work, no_log(missing)))
            continue
        for change in work.changes:
            key = (change.ledger, change.subscription)
            marks[key] = change.mark
            if change.properties is not None:
                properties[key] = change.properties
            for number, bits in change.chunks.items():
                chunks[*key, number] = bits
    yield from _CURSORS.over([v for key, mark in marks.items() for v in (*key, mark, properties.get(key))])
    yield from _stored_or_not(chunks, _CHUNKS, _CHUNKS_DROPPED)


def save_meta(works: Sequence[SaveMeta]) -> Iterator[Statement]:
    """The last document of each kind and key."""
    documents = {(kind, key): document for work in works for kind, key, document in work.documents}
    yield from _stored_or_not(documents, _DOCUMENTS, _DOCUMENTS_DELETED)


def _stored_or_not(
    values: dict[Any, bytes | None], store: RowStatement, drop: RowStatement
) -> Iterator[Statement]:
    yield from store.over([v for key, value in values.items() if value is not None for v in (*key, value)])
    yield from drop.over([v for key, value in values.items() if value is None for v in key])


def delete_cursor(transaction: Transaction, ledger: int, subscription: str) -> None:
    """Delete a cursor with its chunks."""
    for table in ("cursors", "cursor_chunks"):
        statement = f"DELETE FROM {table} WHERE ledger = ? AND subscription = ?"  # noqa: S608
        transaction.connection.execute(statement, (ledger, subscription))


def load_cursors(connection: sqlite3.Connection, ledger: int) -> list[CursorChange]:
    """All cursors of a log, as of one moment."""
    connection.execute("BEGIN")
    try:
        cursors = {
            subscription: CursorChange(ledger, subscription, mark, {}, properties)
            for subscription, mark, properties in connection.execute(
                "SELECT subscription, mark, properties FROM cursors WHERE ledger = ?", (ledger,)
            )
        }
        for subscription, chunk, bits in connection.execute(
            "SELECT subscription, chunk, bits FROM cursor_chunks WHERE ledger = ?", (ledger,)
        ):
            cursors[subscription].chunks[chunk] = bits
    finally:
        connection.execute("COMMIT")
    return list(cursors.values())


def load_meta(connection: sqlite3.Connection, kind: str) -> dict[str, bytes]:
    """All documents of a kind."""
    return dict(connection.execute("SELECT key, document FROM meta WHERE kind = ?", (kind,)).fetchall())


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
    """The id of the row that holds a log's first entry. Whole rows are swept: of a partly trimmed run
    the rest keeps the row."""
    first = first_id(extent.ledger) + extent.first_entry
    place = place_of(transaction.connection, first)
    return first if place is None else place.row


class Sweeps:
    """The ranges of deleted entry ids, each `(start, until)`; swept from the low end up.

    A trim only moves a log's beginning. The entries are deleted afterwards, a slice a transaction, so that a trim of millions
    neither delays the appends nor swells the write-ahead log. The ranges survive a restart.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.waiting: deque[tuple[int, int]] = deque(
            connection.execute("SELECT start, until FROM sweeps ORDER BY start")
        )

    def sweep(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Delete one slice of the first range, within the open transaction; returns the rest."""
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


def append(works: Sequence[Append], transaction: Transaction) -> Iterator[Statement]:
    """Place all entries, and give the statements that store them and the producers' sequence ids."""
    rows: list[Any] = []
    producers: dict[tuple[int, str], int] = {}
    for ledger, appends in _by_ledger(works).items():
        extent = transaction.extent(ledger)
        if extent is None:
            transaction.outcomes += [(work, no_log(ledger)) for work in appends]
            continue
        made = Rows(extent)
        entry_id, offset = extent.next_entry, extent.next_offset
        for work in appends:
            entries = work.entries
            work.result = AppendResult(entry_id, offset)  # used only if the commit succeeds
            made.add(entries)
            entry_id += len(entries)
            if type(entries) is NewRun:
                offset += len(entries)
                continue
            offset += sum([entry.count for entry in entries])
            for entry in entries:
                if entry.producer and entry.sequence_id >= 0:
                    key = (ledger, entry.producer)
                    producers[key] = max(entry.sequence_id, producers.get(key, 0))
        transaction.changed[ledger] = made.end()
        rows += made.values
    yield from ENTRIES.over(rows)
    yield from _PRODUCERS.over([value for key, number in producers.items() for value in (*key, number)])


def _by_ledger(works: Sequence[Append]) -> dict[int, list[Append]]:
    """The appends to each log, in their order."""
    found: dict[int, list[Append]] = {}
    for work in works:
        appends = found.get(work.ledger)
        if appends is None:
            found[work.ledger] = [work]
        else:
            appends.append(work)
    return found


def open_logs(works: Sequence[Open], transaction: Transaction) -> None:
    """Find the logs of all topics, and create those that are missing."""
    connection = transaction.connection
    found = _find([work.topic for work in works], transaction)
    rows: list[Any] = []
    for work in works:
        if work.topic not in found:
            ledger = transaction.next_ledger
            if ledger >= LEDGERS_MAX:
                used_up = f"all {LEDGERS_MAX} ledgers of the storage are used up"
                raise PenstockError(ErrorKind.UNAVAILABLE, used_up)
            transaction.next_ledger += 1
            found[work.topic] = transaction.changed[ledger] = Extent(ledger)
            rows += (ledger, work.topic, 0, 0, 0, 0, 0, 0)
    transaction.execute(_LOGS.over(rows))
    if rows:
        connection.execute("UPDATE next_ledger SET ledger = ?", (transaction.next_ledger,))
    producers: dict[int, dict[str, int]] = {extent.ledger: {} for extent in found.values()}
    for query, ledgers in listed(_FIND_PRODUCERS, list(producers)):
        for ledger, name, sequence_id in connection.execute(query, ledgers):
            producers[ledger][name] = sequence_id
    for work in works:
        extent = found[work.topic]
        transaction.outcomes.append((work, extent.state(dict(producers[extent.ledger]))))


def _find(topics: Sequence[str], transaction: Transaction) -> dict[str, Extent]:
    """The logs among `topics` that there are."""
    found: dict[str, Extent] = {}
    for query, names in listed(_FIND, topics):
        for topic, ledger, *numbers, end, offset, byte in transaction.connection.execute(query, names):
            extent = transaction.extent(ledger)
            if extent is None:
                extent = transaction.changed[ledger] = _extent(ledger, numbers, end, offset, byte)
            found[topic] = extent
    return found


def read_again(connection: sqlite3.Connection, extents: dict[int, Extent]) -> ExtentChanges:
    """Set the open logs to the state of the file; returns those that differed."""
    found = {
        ledger: _extent(ledger, numbers, end, offset, byte)
        for _, ledger, *numbers, end, offset, byte in connection.execute(_ALL)
    }
    changed = {
        ledger: found.get(ledger)
        for ledger, known in extents.items()
        if ledger != STAGING and found.get(ledger) != known
    }
    apply(changed, extents)
    return changed


def _extent(ledger: int, numbers: Sequence[int], end: int | None, offset: int, byte: int) -> Extent:
    """A log from its row and the end of its last entry: `end` is the id after it."""
    extent = Extent(ledger, *numbers)
    # The row knows of the end at the last trim only; an older entry is one not yet swept.
    if end is not None and end - first_id(ledger) > extent.next_entry:
        extent = extent.until(end - first_id(ledger), offset, byte)
    return extent


def forget_producers(transaction: Transaction, ledger: int, names: Sequence[str]) -> None:
    """Delete the sequence ids of producers."""
    for query, listed_names in listed(_FORGET, names):
        transaction.connection.execute(query, (*listed_names, ledger))
