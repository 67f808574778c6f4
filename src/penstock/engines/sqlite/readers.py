"""The reader threads, each with its own read-only connection."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from penstock.model.entry import Entry, EntryRun

from .connection import open_reader, translate
from .gil_yield import GilYield
from .runs import COLUMNS, entries_of, place_of, run_of
from .schema import ENTRIES_IN_ROW

P = ParamSpec("P")
T = TypeVar("T")

# From the row on that holds the first id. If that row has been swept since, this begins a row too early, and one more is read.
_READ: Final = f"""
    SELECT {COLUMNS} FROM entries
    WHERE id >= coalesce((SELECT max(id) FROM entries WHERE id <= ?), ?) AND id < ? ORDER BY id LIMIT ?
"""  # noqa: S608

# The rows that may hold the first of the ids from `first` up to `until` that is not before something, found in one
# statement: each step would cost a turn at Python's lock. `low` becomes the id of the first row that is not before it; of a
# run just before that row a later entry may be the one. An id without entry was swept, and lies before those that are.
_MIDDLE: Final = "low + (high - low) / 2"
_AFTER: Final = f"id + {ENTRIES_IN_ROW}"
_BISECT: Final = f"""
    WITH RECURSIVE range(low, high) AS (
        SELECT :first, :until
        UNION ALL
        SELECT
            CASE WHEN id IS NULL OR {_AFTER} <= {_MIDDLE} THEN {_MIDDLE} + 1
                WHEN {{is_before}} THEN {_AFTER} ELSE low END,
            CASE WHEN id IS NULL OR {_AFTER} <= {_MIDDLE} OR {{is_before}} THEN high ELSE max(low, id) END
        FROM range LEFT JOIN entries ON id = (SELECT max(id) FROM entries WHERE id <= {_MIDDLE})
        WHERE low < high
    ), ended(low) AS (SELECT low FROM range WHERE low >= high)
    SELECT {COLUMNS}, first_byte FROM ended JOIN entries
        ON id IN (SELECT id FROM entries WHERE id <= low ORDER BY id DESC LIMIT 2) AND (id = low OR sizes IS NOT NULL)
    ORDER BY id
"""  # noqa: S608


class Search(NamedTuple):
    """A search among the entries of a log: by rows, and which entry of those that are found is meant."""

    query: str
    meant: Callable[[Entry, int, int], bool]  # by the entry, its first byte in the log, and the value


# The first entry that ends after an offset; that was published at or after a time, as far as times are in order;
# that begins at or after a byte of the log.
FIND_OFFSET: Final = Search(
    _BISECT.format(is_before="first_offset + count <= :value"), lambda entry, _, offset: entry.end > offset
)
FIND_TIME: Final = Search(
    _BISECT.format(is_before="publish_time < :value"), lambda entry, _, time: entry.publish_time >= time
)
FIND_BYTE: Final = Search(
    _BISECT.format(is_before="first_byte < :value"), lambda _, first_byte, byte: first_byte >= byte
)


class Readers:
    """A pool of reading threads."""

    def __init__(self, file: Path, threads: int, gil_yield: GilYield) -> None:
        self._file = file
        self._gil_yield = gil_yield
        self._executor = ThreadPoolExecutor(threads, "penstock-reader")
        self._mine = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def run(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run `query` in one of the threads."""

        def call() -> T:
            try:
                return query(self._connection(), *args, **kwargs)
            except sqlite3.Error as error:
                raise translate(error) from None

        self._gil_yield.asked()
        answer = asyncio.get_running_loop().run_in_executor(self._executor, call)
        answer.add_done_callback(lambda _: self._gil_yield.answered())
        return answer

    def close(self) -> None:
        """Finish the requests in progress; blocks until then."""
        self._executor.shutdown()
        for connection in self._connections:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = open_reader(self._file)
            self._connections.append(connection)
        return connection


def read(
    connection: sqlite3.Connection, start: int, until: int, entries_max: int, bytes_max: int
) -> list[Entry]:
    """Entries with ids from `start` up to `until`: one, and more within both bounds."""
    found: list[Entry] = []
    size, entries_max = 0, max(1, entries_max)
    rows = connection.execute(_READ, (start, start, until, entries_max + 1))
    for row in rows:
        entries = entries_of(row)[max(0, start - row[0]) :]
        for entry in entries[: entries_max - len(found)]:
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        else:
            if len(found) < entries_max:
                continue
        rows.close()  # ends the read: an open one would prevent that the write-ahead log starts again
        break
    return found


def read_runs(
    connection: sqlite3.Connection, start: int, until: int, entries_max: int, bytes_max: int
) -> list[Entry | EntryRun]:
    """The same, with runs as they are stored: one, and more within both bounds."""
    found: list[Entry | EntryRun] = []
    size = count = 0
    rows = connection.execute(_READ, (start, start, until, max(1, entries_max) + 1))
    for one in map(run_of, rows, repeat(start)):
        if one is None:
            continue
        size += len(one.data)
        count += one.next_entry - one.entry_id
        if found and (size > bytes_max or count > entries_max):
            break
        found.append(one)
    rows.close()
    return found


def find(connection: sqlite3.Connection, search: Search, first: int, until: int, value: int) -> Entry | None:
    """The entry that one of the `FIND_` searches finds among the ids from `first` up to `until`."""
    rows = connection.execute(search.query, {"first": first, "until": until, "value": value}).fetchall()
    for *row, byte in rows:
        for number, entry in enumerate(entries_of(row), row[0]):
            if first <= number < until and search.meant(entry, byte, value):
                return entry
            byte += len(entry.data)
    return None


def first_byte(connection: sqlite3.Connection, number: int) -> int | None:
    """The byte position of an entry's data in the log; None if it is swept."""
    place = place_of(connection, number)
    return None if place is None else place.byte
