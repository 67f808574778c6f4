"""The store that the core sees: calls go to the writer, to the readers, or are answered from memory."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from penstock.engines.embedded.ports import CursorChange, LogState
from penstock.engines.embedded.runtime.histogram import Writes
from penstock.engines.embedded.runtime.storage_health import StorageHealth
from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets
from penstock.model.stage import Writer as StageWriter

from . import commits, readers, stages
from .backup import copy
from .connection import WAL_BYTES_MAX
from .extent import Extent
from .folder import FolderLock
from .gil_yield import GilYield
from .readers import Readers
from .schema import first_id
from .tables import MEASURE_BYTES, RESERVE_BYTES
from .work import (
    Append,
    CommitStages,
    Delete,
    DeleteCursor,
    DropStages,
    ForgetCommit,
    ForgetProducers,
    ForgetWriters,
    LimitSize,
    Open,
    RepeatCommit,
    SaveCursors,
    SaveMeta,
    SaveWriter,
    Stage,
    Stop,
    Trim,
    Work,
)
from .writer import Writer

FILE_NAME: Final = "penstock.db"
READERS: Final = 2

T = TypeVar("T")


class SqliteStore:
    """A `Store` in `folder`, which is made when it is missing and belongs to one server at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        size_max_bytes: int | None = None,
        files_max_bytes: int | None = None,
        reserve_bytes: int = 0,
        readers: int = READERS,
    ) -> None:
        """`size_max_bytes` bounds the main file; appends beyond it raise STORAGE_FULL. None: the disk does.

        `files_max_bytes` bounds it together with the write-ahead log, which grows under long reads.
        `reserve_bytes` are kept on the disk for what frees room when the disk is full.
        """
        self._folder = folder
        self._file = folder / FILE_NAME
        self._size_max_bytes = size_max_bytes
        self._files_max_bytes = files_max_bytes
        self._reserve_bytes = reserve_bytes
        self._threads = readers
        self.health = StorageHealth()
        self._bound = size_max_bytes  # as it was asked for
        self._lock: FolderLock | None = None
        self._writer: Writer | None = None
        self._readers: Readers | None = None

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
        made = cls(
            folder,
            size_max_bytes=files - WAL_BYTES_MAX - RESERVE_BYTES,
            files_max_bytes=files,
            reserve_bytes=reserve_bytes,
        )
        made._bound = size_max_bytes
        return made

    async def start(self) -> None:
        lock = FolderLock.claim(self._folder)
        give_way = GilYield()
        writer = Writer(
            self._file,
            self._size_max_bytes,
            give_way,
            self.health,
            reserve_bytes=self._reserve_bytes,
            files_max_bytes=self._files_max_bytes,
        )
        try:
            await writer.start()
        except BaseException:
            lock.release()
            raise
        self._lock, self._writer = lock, writer
        self.health.files = lambda: writer.disk.files(self._bound)
        self._readers = Readers(self._file, self._threads, give_way)

    @property
    def writes(self) -> Writes | None:
        """What the writer did since the start."""
        return None if self._writer is None else self._writer.writes

    async def close(self) -> None:
        lock, writer, pool = self._lock, self._writer, self._readers
        if lock is None or writer is None or pool is None:
            return
        self._lock = self._writer = self._readers = None
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(pool.close)
            writer.submit(Stop(stopped))
            await stopped
            await asyncio.to_thread(writer.join)
        finally:
            lock.release()

    def open(self, topic: str) -> asyncio.Future[LogState]:
        return self._submit(Open(_future(), topic))

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> asyncio.Future[AppendResult]:
        return self._submit(Append(_future(), ledger, entries))

    def read(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> asyncio.Future[list[Entry]]:
        extent = self._extent(ledger)
        start = max(entry_id, extent.first_entry)
        if start >= extent.next_entry:
            return _done([])
        base = first_id(ledger)
        return self._pool.run(readers.read, base + start, base + extent.next_entry, entries_max, bytes_max)

    def find_offset(self, ledger: int, offset: int) -> asyncio.Future[Entry | None]:
        extent = self._extent(ledger)
        if offset >= extent.next_offset:
            return _done(None)
        return self._pool.run(readers.find_offset, *_bounds(extent), offset)

    def find_time(self, ledger: int, publish_time: int) -> asyncio.Future[Entry | None]:
        extent = self._extent(ledger)
        if extent.first_entry == extent.next_entry:
            return _done(None)
        return self._pool.run(readers.find_time, *_bounds(extent), publish_time)

    def find_size(self, ledger: int, size_bytes: int) -> asyncio.Future[Entry | None]:
        extent = self._extent(ledger)
        if extent.first_entry == extent.next_entry:
            return _done(None)
        return self._pool.run(readers.find_byte, *_bounds(extent), extent.next_byte - size_bytes)

    async def size_since(self, ledger: int, entry_id: int) -> int:
        extent = self._extent(ledger)
        if entry_id >= extent.next_entry:
            return 0
        byte = None
        if entry_id > extent.first_entry:
            byte = await self._pool.run(readers.first_byte, first_id(ledger) + entry_id)
        # An entry that went meanwhile had nothing before it that stays.
        return extent.next_byte - (extent.first_byte if byte is None else byte)

    def trim(self, ledger: int, before_entry: int) -> asyncio.Future[int]:
        return self._submit(Trim(_future(), ledger, before_entry))

    def forget_producers(self, ledger: int, names: Sequence[str]) -> asyncio.Future[None]:
        return self._submit(ForgetProducers(_future(), ledger, names))

    def delete(self, ledger: int) -> asyncio.Future[None]:
        return self._submit(Delete(_future(), ledger))

    def load_cursors(self, ledger: int) -> asyncio.Future[list[CursorChange]]:
        return self._pool.run(readers.load_cursors, ledger)

    def save_cursors(self, changes: Sequence[CursorChange]) -> asyncio.Future[None]:
        return self._submit(SaveCursors(_future(), changes))

    def delete_cursor(self, ledger: int, subscription: str) -> asyncio.Future[None]:
        return self._submit(DeleteCursor(_future(), ledger, subscription))

    def load_meta(self, kind: str) -> asyncio.Future[dict[str, bytes]]:
        return self._pool.run(readers.load_meta, kind)

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> asyncio.Future[None]:
        return self._submit(SaveMeta(_future(), documents))

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> asyncio.Future[None]:
        return self._submit(Stage(_future(), key, part, checksum, at, runs))

    def load_stages(self) -> asyncio.Future[tuple[list[StagedRun], list[StageWriter]]]:
        return self._pool.run(stages.load)

    def commit_stages(
        self, commit: Commit, stages: Sequence[str], lost: Sequence[StageKey] = (), commits_max: int = 0
    ) -> asyncio.Future[Commit]:
        return self._submit(CommitStages(_future(), commit, stages, lost, commits_max))

    def repeat_commit(self, commit: Commit, keys: Sequence[StageKey]) -> asyncio.Future[None]:
        return self._submit(RepeatCommit(_future(), commit, keys))

    def drop_stages(self, keys: Sequence[StageKey]) -> asyncio.Future[None]:
        return self._submit(DropStages(_future(), keys))

    def find_commit(self, writer: str, topics: Targets) -> asyncio.Future[Commit | None]:
        return self._pool.run(commits.find_commit, writer, topics)

    def save_writer(self, writer: StageWriter, writers_max: int = 0) -> asyncio.Future[bool]:
        return self._submit(SaveWriter(_future(), writer, writers_max))

    def find_writer(self, name: str) -> asyncio.Future[StageWriter | None]:
        return self._pool.run(commits.find_writer, name)

    def list_targets(self, writer: str) -> asyncio.Future[list[Target]]:
        return self._pool.run(commits.list_targets, writer)

    def list_writers(
        self, after: str, owner: str | None, writers_max: int
    ) -> asyncio.Future[list[StageWriter]]:
        return self._pool.run(commits.list_writers, after, owner, writers_max)

    def idle_writers(self, keep: bool, before: int, writers_max: int) -> asyncio.Future[list[StageWriter]]:
        return self._pool.run(commits.idle_writers, keep, before, writers_max)

    def forget_writers(self, names: Sequence[str]) -> asyncio.Future[None]:
        return self._submit(ForgetWriters(_future(), names))

    def forget_commit(self, writer: str, topics: Targets) -> asyncio.Future[bool]:
        return self._submit(ForgetCommit(_future(), writer, topics))

    def limit_size(self, size_max_bytes: int | None) -> asyncio.Future[None]:
        """Change the bound on the main file; one below its present size keeps it from growing."""
        return self._submit(LimitSize(_future(), size_max_bytes))

    async def backup(self, target: Path) -> None:
        """Copy the storage as of now to the file `target`, while work goes on.

        The copy is durable when this returns; until then there is nothing at `target`. Raises ALREADY_EXISTS
        when there was something before, STORAGE_FULL or UNAVAILABLE when it cannot be written.
        """
        self._started()
        await asyncio.to_thread(copy, self._file, target)

    def _submit(self, work: Work) -> asyncio.Future[Any]:
        if self._writer is None:
            work.future.set_exception(_closed())
        else:
            self._writer.submit(work)
        return work.future

    def _started(self) -> Writer:
        if self._writer is None:
            raise _closed()
        return self._writer

    def _extent(self, ledger: int) -> Extent:
        return self._started().extents.get(ledger) or Extent(ledger)

    @property
    def _pool(self) -> Readers:
        if self._readers is None:
            raise _closed()
        return self._readers


def _bounds(extent: Extent) -> tuple[int, int]:
    base = first_id(extent.ledger)
    return base + extent.first_entry, base + extent.next_entry


def _closed() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the storage is closed")


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _done(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future
