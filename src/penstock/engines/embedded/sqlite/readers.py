"""The threads that read, each with a connection of its own that cannot write."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from penstock.model.entry import Entry

from .connection import open_reader, translate
from .gil_yield import GilYield
from .schema import DATA, ENTRY_BITS, ENTRY_MASK

P = ParamSpec("P")
T = TypeVar("T")

_COLUMNS: Final = f"id, first_offset, count, publish_time, deliver_at, {DATA}"

# The first of the ids from `first` up to `until` of which the condition fails, found in one statement: each
# step would cost a turn at Python's lock. An id without entry was swept, and lies before those that are.
_BISECT: Final = f"""
    WITH RECURSIVE range(low, high) AS (
        SELECT :first, :until
        UNION ALL
        SELECT
            CASE WHEN id IS NULL OR {{before}} THEN low + (high - low) / 2 + 1 ELSE low END,
            CASE WHEN id IS NULL OR {{before}} THEN high ELSE low + (high - low) / 2 END
        FROM range LEFT JOIN entries ON id = low + (high - low) / 2
        WHERE low < high
    )
    SELECT {_COLUMNS} FROM entries WHERE id = (SELECT low FROM range WHERE low >= high) AND id < :until
"""  # noqa: S608
# The first entry that ends after an offset; that was published at or after a time, as far as times are in order;
# that begins at or after a byte of the log.
FIND_OFFSET: Final = _BISECT.format(before="first_offset + count <= :value")
FIND_TIME: Final = _BISECT.format(before="publish_time < :value")
FIND_BYTE: Final = _BISECT.format(before="first_byte < :value")


class Readers:
    """A pool of reading threads."""

    def __init__(self, file: Path, threads: int, gil_yield: GilYield) -> None:
        self._file = file
        self._gil_yield = gil_yield
        self._executor = ThreadPoolExecutor(threads, "penstock-reader")
        self._mine = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def run(
        self,
        query: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
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
        """Finish what was asked for; blocks meanwhile."""
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
    query = f"SELECT {_COLUMNS} FROM entries WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"  # noqa: S608
    found: list[Entry] = []
    size = 0
    rows = connection.execute(query, (start, until, max(1, entries_max)))
    for row in rows:
        size += len(row[5])
        if found and size > bytes_max:
            rows.close()  # ends the read: an open one would prevent that the write-ahead log starts again
            break
        found.append(_entry(row))
    return found


def find(connection: sqlite3.Connection, query: str, first: int, until: int, value: int) -> Entry | None:
    """The entry that one of the `FIND_` queries finds among the ids from `first` up to `until`."""
    row = connection.execute(query, {"first": first, "until": until, "value": value}).fetchone()
    return None if row is None else _entry(row)


def first_byte(connection: sqlite3.Connection, row: int) -> int | None:
    """Where an entry's data begins, counted over the log; None when it is swept."""
    found = connection.execute("SELECT first_byte FROM entries WHERE id = ?", (row,)).fetchone()
    return None if found is None else int(found[0])


def _entry(row: tuple[int, int, int, int, int, bytes]) -> Entry:
    number = row[0]
    return Entry(number >> ENTRY_BITS, number & ENTRY_MASK, *row[1:])
