"""The statements that open logs and append to them.

Those that only write are given back to be executed together; the others are executed here, within the
transaction that is open.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.engines.core.ports import no_log
from penstock.model.entry import AppendResult, NewRun
from penstock.model.errors import ErrorKind, PenstockError

from .rows import RowStatement, Statement, listed
from .runs import Rows
from .schema import DATA, ENTRIES_IN_ROW, LEDGERS_MAX, STAGING, first_id
from .work import Append, Extent, ExtentChanges, Open, Transaction, apply

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
            work.result = AppendResult(entry_id, offset)  # of use only where the commit succeeds
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
    """Let the logs that are open be as the file has them; returns what was otherwise."""
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
    """A log by its row, and by where its last entry ends: `end` is the id after it."""
    extent = Extent(ledger, *numbers)
    # The row knows of the end at the last trim only; an older entry is one not yet swept.
    if end is not None and end - first_id(ledger) > extent.next_entry:
        extent = extent.until(end - first_id(ledger), offset, byte)
    return extent


def forget_producers(transaction: Transaction, ledger: int, names: Sequence[str]) -> None:
    """Delete the sequence ids of producers."""
    for query, listed_names in listed(_FORGET, names):
        transaction.connection.execute(query, (*listed_names, ledger))
