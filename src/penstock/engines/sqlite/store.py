"""The store that the engine sees: calls go to the writer, to the readers, or are answered from memory."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, TypeVarTuple

import msgspec

from penstock.broker.storage_health import StorageHealth
from penstock.engines.core.ports import CursorChange, LogState
from penstock.model.entry import AppendResult, Entry, EntryRun, NewEntry, NewRun
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StageKey, StageRun
from penstock.runtime.tasks import Uncancellable

from . import logs, readers, stages
from .backup import copy
from .connection import WAL_BYTES_MAX
from .disk import Bounds, Disk
from .folder import FolderLock
from .gil_yield import GilYield
from .readers import Readers, Search
from .schema import first_id
from .tables import MEASURE_BYTES, RESERVE_BYTES
from .work import (
    Append,
    Change,
    Extent,
    LimitSize,
    Open,
    SaveCursors,
    SaveMeta,
    Stage,
    Stop,
    Transaction,
    Work,
)
from .writer import Writer

FILE_NAME: Final = "penstock.db"
READERS: Final = 2

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Started(msgspec.Struct):
    lock: FolderLock
    writer: Writer
    readers: Readers


def _queries(
    query: Callable[Concatenate[sqlite3.Connection, P], T],
) -> Callable[Concatenate["SqliteStore", P], asyncio.Future[T]]:
    """A method that runs `query` in a thread that reads."""

    def call(store: "SqliteStore", /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return store._running().readers.run(query, *args, **kwargs)

    return call


def _changes(
    change: Callable[Concatenate[Transaction, P], T],
) -> Callable[Concatenate["SqliteStore", P], asyncio.Future[T]]:
    """A method that has the writer call `change` within a transaction."""

    def call(store: "SqliteStore", /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        return store._submit(Change(change, args, kwargs))

    return call


class SqliteStore:
    """A `Store` in `folder`, which is made when it is missing and belongs to one server at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        size_max_bytes: int | None = None,
        files_max_bytes: int | None = None,
        reserve_bytes: int = 0,
    ) -> None:
        """The bounds are those of `Bounds`; appends beyond them raise STORAGE_FULL."""
        self._folder = folder
        self._file = folder / FILE_NAME
        self._bounds = Bounds(size_max_bytes, files_max_bytes, reserve_bytes, size_max_bytes)
        self.health = StorageHealth()
        self._started: _Started | None = None

    @classmethod
    def bounded(cls, folder: Path, size_max_bytes: int, reserve_bytes: int) -> Self:
        """A store whose files, all together, stay within `size_max_bytes`; 0: within the disk.

        The main file gets what the write-ahead log, the room for acknowledgements and deletes, and the file
        of `reserve_bytes` leave of it. Under a long read (a backup) the write-ahead log may have what the main file
        does not use; appends are refused once nothing is left.
        """
        if not size_max_bytes:
            return cls(folder, reserve_bytes=reserve_bytes)
        reserve_bytes = min(reserve_bytes, size_max_bytes // 8)
        files = size_max_bytes - reserve_bytes - MEASURE_BYTES
        made = cls(folder)
        made._bounds = Bounds(files - WAL_BYTES_MAX - RESERVE_BYTES, files, reserve_bytes, size_max_bytes)
        return made

    async def start(self) -> None:
        lock = FolderLock.claim(self._folder)
        gil_yield = GilYield()
        writer = Writer(Disk(self._file, self._bounds, self.health), gil_yield)
        self.health.writes = writer.writes
        try:
            await writer.start()
        except BaseException:
            lock.release()
            raise
        self._started = _Started(lock, writer, Readers(self._file, READERS, gil_yield))

    async def close(self) -> None:
        started, self._started = self._started, None
        if started is None:
            return
        stop = Stop()
        try:
            await asyncio.to_thread(started.readers.close)
            started.writer.submit(stop)
            await stop.future
            await asyncio.to_thread(started.writer.join)
        finally:
            started.lock.release()

    # -- logs

    def open(self, topic: str) -> asyncio.Future[LogState]:
        return self._submit(Open(topic))

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> asyncio.Future[AppendResult]:
        if type(entries) is NewRun:
            size = entries.size_bytes
        else:
            size = len(entries[0].data) if len(entries) == 1 else sum([len(entry.data) for entry in entries])
        future: Uncancellable[AppendResult] = Uncancellable(loop=asyncio.get_running_loop())
        return self._submit(Append(ledger, entries, future=future, size_bytes=size))

    def read(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> asyncio.Future[list[Entry]]:
        return self._read(readers.read, ledger, entry_id, entries_max, bytes_max)

    def read_runs(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> asyncio.Future[list[Entry | EntryRun]]:
        return self._read(readers.read_runs, ledger, entry_id, entries_max, bytes_max)

    def _read(
        self,
        query: Callable[[sqlite3.Connection, int, int, int, int], list[T]],
        ledger: int,
        entry_id: int,
        entries_max: int,
        bytes_max: int,
    ) -> asyncio.Future[list[T]]:
        extent = self._extent(ledger)
        start = max(entry_id, extent.first_entry)
        if start >= extent.next_entry:
            return _done([])
        base = first_id(ledger)
        return self._query(query, base + start, base + extent.next_entry, entries_max, bytes_max)

    trim = _changes(logs.trim)
    forget_producers = _changes(logs.forget_producers)
    delete = _changes(logs.delete)

    def find_offset(self, ledger: int, offset: int) -> asyncio.Future[Entry | None]:
        extent = self._extent(ledger)
        if offset >= extent.next_offset:
            return _done(None)
        return self._find(readers.FIND_OFFSET, extent, offset)

    def find_time(self, ledger: int, publish_time: int) -> asyncio.Future[Entry | None]:
        return self._find(readers.FIND_TIME, self._extent(ledger), publish_time)

    def find_size(self, ledger: int, size_bytes: int) -> asyncio.Future[Entry | None]:
        extent = self._extent(ledger)
        return self._find(readers.FIND_BYTE, extent, extent.next_byte - size_bytes)

    def _find(self, search: Search, extent: Extent, value: int) -> asyncio.Future[Entry | None]:
        if extent.first_entry == extent.next_entry:
            return _done(None)
        base = first_id(extent.ledger)
        return self._query(readers.find, search, base + extent.first_entry, base + extent.next_entry, value)

    async def size_since(self, ledger: int, entry_id: int) -> int:
        extent = self._extent(ledger)
        if entry_id >= extent.next_entry:
            return 0
        byte = None
        if entry_id > extent.first_entry:
            byte = await self._query(readers.first_byte, first_id(ledger) + entry_id)
        # If an entry has been deleted since, so have all before it.
        return extent.next_byte - (extent.first_byte if byte is None else byte)

    # -- cursors and documents

    load_cursors = _queries(logs.load_cursors)
    delete_cursor = _changes(logs.delete_cursor)
    load_meta = _queries(logs.load_meta)

    def save_cursors(self, changes: Sequence[CursorChange]) -> asyncio.Future[None]:
        return self._submit(SaveCursors(changes))

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> asyncio.Future[None]:
        return self._submit(SaveMeta(documents))

    # -- stages, their commits and writers

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> asyncio.Future[None]:
        return self._submit(Stage(key, part, checksum, at, runs))

    load_stages = _queries(stages.load_stages)
    drop_stages = _changes(stages.drop_stages)
    commit_stages = _changes(stages.commit_stages)
    repeat_commit = _changes(stages.repeat_commit)
    find_commit = _queries(stages.find_commit)
    list_targets = _queries(stages.list_targets)
    forget_commit = _changes(stages.forget_commit)
    save_writer = _changes(stages.save_writer)
    find_writer = _queries(stages.find_writer)
    list_writers = _queries(stages.list_writers)
    idle_writers = _queries(stages.idle_writers)
    forget_writers = _changes(stages.forget_writers)

    # -- the storage as a whole

    def limit_size(self, size_max_bytes: int | None) -> asyncio.Future[None]:
        """Change the bound on the main file; one below its present size keeps it from growing."""
        return self._submit(LimitSize(size_max_bytes))

    async def backup(self, target: Path) -> None:
        """Copy the storage as of now to the file `target`, while work goes on.

        The copy is durable when this returns; until then there is nothing at `target`. Raises ALREADY_EXISTS
        when there was something before, STORAGE_FULL or UNAVAILABLE when it cannot be written.
        """
        self._running()
        await asyncio.to_thread(copy, self._file, target)

    def _submit(self, work: Work) -> asyncio.Future[Any]:
        if self._started is None:
            work.future.set_exception(_closed())
        else:
            self._started.writer.submit(work)
        return work.future

    def _query(self, query: Callable[[sqlite3.Connection, *Ts], T], *arguments: *Ts) -> asyncio.Future[T]:
        return self._running().readers.run(query, *arguments)

    def _extent(self, ledger: int) -> Extent:
        return self._running().writer.extents.get(ledger) or Extent(ledger)

    def _running(self) -> _Started:
        if self._started is None:
            raise _closed()
        return self._started


def _closed() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the storage is closed")


def _done(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
