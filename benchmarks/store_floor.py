"""The store floor: entries inserted into SQLite by a bare loop, next to `SqliteStore.append`, equally durable.

    python benchmarks/store_floor.py [--seconds 2] [--folder DIR]

The floor inserts rows of fewer columns, all from one thread that does nothing else, and commits as many at
once as the store has publishers. `busy` means that the event loop has endless other work in Python, in pieces
of 100 µs, so that the store has to fight for Python's lock.
"""

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop

from penstock.engines.sqlite import SqliteStore
from penstock.model.entry import NewEntry


class Case(NamedTuple):
    publishers: int
    messages: int  # in an entry
    entry_bytes: int


CASES = (
    Case(1, 1, 150),
    Case(64, 1, 150),
    Case(512, 1, 150),
    Case(1, 100, 12_000),
    Case(64, 100, 12_000),
    Case(512, 100, 12_000),
)


def floor(folder: Path, case: Case, seconds: float) -> float:
    """Entries a second of the bare loop."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    for pragma in ("page_size = 8192", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE entries (id INTEGER PRIMARY KEY, count, publish_time, data BLOB)")
    data = os.urandom(case.entry_bytes)
    number = 0
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        rows = [(number + n, case.messages, 1_700_000_000_000, data) for n in range(case.publishers)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        number += case.publishers
    elapsed = time.perf_counter() - start
    connection.close()
    return number / elapsed


async def store(folder: Path, case: Case, seconds: float, *, busy: bool) -> float:
    """Entries a second of as many publishers, each of which waits for its append before the next."""
    opened = SqliteStore(folder)
    await opened.start()
    ledger = (await opened.open("persistent://public/default/floor")).ledger
    loop = asyncio.get_running_loop()
    data = os.urandom(case.entry_bytes)
    deadline = time.perf_counter() + seconds
    number = 0

    def work() -> None:
        until = time.perf_counter() + 0.0001
        while time.perf_counter() < until:
            pass
        if time.perf_counter() < deadline:
            loop.call_soon(work)

    async def publish() -> None:
        nonlocal number
        while time.perf_counter() < deadline:
            await opened.append(ledger, (NewEntry(data, case.messages, 1_700_000_000_000),))
            number += 1

    start = time.perf_counter()
    if busy:
        loop.call_soon(work)
    async with asyncio.TaskGroup() as group:
        for _ in range(case.publishers):
            group.create_task(publish())
    elapsed = time.perf_counter() - start
    await opened.close()
    return number / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, help="where to write; the default is the temporary folder")
    args = parser.parse_args()
    columns = (
        "publishers",
        "messages",
        "bytes",
        "floor/s",
        "store/s",
        "ratio",
        "busy/s",
        "messages/s",
        "MB/s",
    )
    print(f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}; entries a second")
    print(" ".join(f"{column:>11}" for column in columns))
    for case in CASES:
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            base = floor(Path(name), case, args.seconds)
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            idle = uvloop.run(store(Path(name), case, args.seconds, busy=False))
        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            busy = uvloop.run(store(Path(name), case, args.seconds, busy=True))
        rates = (base, idle, f"{idle / base:.2f}", busy, idle * case.messages, idle * case.entry_bytes / 1e6)
        row = (*case, *rates)
        print(
            " ".join(f"{value if isinstance(value, str) else f'{value:,.0f}':>11}" for value in row),
            flush=True,
        )


if __name__ == "__main__":
    main()
