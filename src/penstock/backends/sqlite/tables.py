"""The file as the writer sees it: every call of `commit` is one transaction.

What is counted (entries, offsets, ledgers) is counted here in memory, and moves on only after the commit.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.model.errors import PenstockError

from .connection import BUSY_TIMEOUT_S, WAL_BYTES_MAX, open_writer
from .extent import Extent
from .logs import append, delete, forget_producers, open_logs, trim
from .rows import Statement
from .saves import save_cursors, save_meta
from .schema import PAGE_BYTES, STAGING, prepare
from .staged import Changes, Staged
from .stages import commit_stages, drop_stages, stage, staging_extent
from .sweeps import Sweeps
from .work import (
    Append,
    CommitStages,
    Delete,
    DeleteCursor,
    DropStages,
    ForgetCommits,
    ForgetProducers,
    LimitSize,
    Open,
    SaveCursors,
    SaveMeta,
    Stage,
    Trim,
    Work,
)

RESERVE_BYTES: Final = 8 << 20  # for cursors, trims and the like when `size_max_bytes` is reached
PAGES_MAX: Final = 2**32 - 2  # SQLite's own bound
READERS_WAIT_S: Final = 0.1  # how long appends may wait for readers to leave the write-ahead log


class Tables:
    """Owns the connection that writes. All of it belongs to the writer's thread."""

    def __init__(self, file: Path, size_max_bytes: int | None) -> None:
        self._extents: dict[int, Extent] = {}  # every log opened so far
        self._changed: Changes = {}
        self._file = file
        self._size_max_bytes = size_max_bytes
        self._broken = False
        self._untended_bytes = 0
        self._connection = open_writer(file)
        try:
            prepare(self._connection)
            self._limit(size_max_bytes)
            self._next_ledger: int = self._connection.execute("SELECT ledger FROM next_ledger").fetchone()[0]
            self._extents[STAGING] = staging_extent(self._connection)
            self.sweeps = Sweeps(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Write everything into the main file and close it."""
        self.checkpoint("TRUNCATE")
        self._connection.close()

    def commit(self, works: Sequence[Work]) -> None:
        """Do all `works` in one transaction and give them their outcomes.

        When it raises, nothing was done, and `recover` must be called.
        """
        if self._broken:
            self._connect()
        self._untended_bytes += sum([work.size_bytes + PAGE_BYTES for work in works])
        staged = Staged(self._extents, self._next_ledger)
        if works[0].mixes:
            self._mixed(works, staged)
        else:
            with self._transaction():
                for work in works:
                    self._single(work, staged)
        self._put_in_force(staged)

    def take_changed(self) -> Changes:
        """The logs that commits have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def sweep(self) -> None:
        """Free some of the room that entries let go of have left; what `commit` says holds here, too."""
        if self._broken:
            self._connect()
        with self._transaction():
            swept = self.sweeps.sweep(self._connection)
        self.sweeps.put_in_force(swept)

    def recover(self) -> None:
        """Undo what a failed transaction left; a connection beyond that is replaced by the next commit."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()
            self._broken = True

    def tend(self) -> None:
        """Keep the write-ahead log within its bound; call it now and then.

        SQLite starts the log anew at the first commit that finds it in the main file and nobody reading it.
        Where there is always a reader, that never happens; so readers have to wait for once.
        """
        if self._untended_bytes < WAL_BYTES_MAX or self._broken:
            return
        self._untended_bytes = 0
        try:
            if self._file.with_name(f"{self._file.name}-wal").stat().st_size > WAL_BYTES_MAX:
                self._wait(READERS_WAIT_S)
                self.checkpoint("TRUNCATE")
                self._wait(BUSY_TIMEOUT_S)
        except (OSError, sqlite3.Error):
            pass  # there will be another time

    def checkpoint(self, mode: str = "PASSIVE") -> None:
        """Move the write-ahead log into the main file."""
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except sqlite3.Error:
            pass  # nothing is lost, the write-ahead log has it; the next checkpoint tries again

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Let the file grow a little beyond its bound."""
        if self._broken:
            self._connect()
        if self._size_max_bytes is None:
            yield
            return
        self._limit(self._size_max_bytes + RESERVE_BYTES)
        try:
            yield
        finally:
            self._limit(self._size_max_bytes)

    def _connect(self) -> None:
        self._connection = open_writer(self._file)
        self._broken = False
        self._limit(self._size_max_bytes)

    def _wait(self, seconds: float) -> None:
        """Set how long to wait for others."""
        self._connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _limit(self, size_max_bytes: int | None) -> None:
        """Bound the main file. SQLite never sets the bound below what the file has already."""
        pages = PAGES_MAX if size_max_bytes is None else max(1, size_max_bytes // PAGE_BYTES)
        self._connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.execute("COMMIT")

    def _mixed(self, works: Sequence[Work], staged: Staged) -> None:
        opens = [work for work in works if isinstance(work, Open)]
        statements: list[Statement] = [
            *append([work for work in works if isinstance(work, Append)], staged),
            *stage([work for work in works if isinstance(work, Stage)], staged),
            *save_cursors([work for work in works if isinstance(work, SaveCursors)], staged),
            *save_meta([work for work in works if isinstance(work, SaveMeta)]),
        ]
        if len(statements) == 1 and not opens:
            self._connection.execute(*statements[0])  # a transaction by itself, and in one step
        elif statements or opens:
            with self._transaction():
                open_logs(self._connection, opens, staged)
                for statement in statements:
                    self._connection.execute(*statement)

    def _single(self, work: Work, staged: Staged) -> None:
        match work:
            case Trim():
                trim(self._connection, work, staged)
            case ForgetProducers():
                forget_producers(self._connection, work)
            case Delete():
                delete(self._connection, work, staged)
            case DeleteCursor():
                key = (work.ledger, work.subscription)
                self._connection.execute("DELETE FROM cursors WHERE ledger = ? AND subscription = ?", key)
                self._connection.execute(
                    "DELETE FROM cursor_chunks WHERE ledger = ? AND subscription = ?", key
                )
            case CommitStages():
                commit_stages(self._connection, work, staged)
            case DropStages():
                drop_stages(self._connection, work, staged)
            case ForgetCommits():
                for writer in work.writers:
                    self._connection.execute("DELETE FROM commits WHERE writer = ?", (writer,))
            case LimitSize():
                self._limit(work.size_max_bytes)
                self._size_max_bytes = work.size_max_bytes
            case _:
                raise TypeError(f"{type(work).__name__} has no statement")

    def _put_in_force(self, staged: Staged) -> None:
        self._next_ledger = staged.next_ledger
        for ledger, extent in staged.changed.items():
            if extent is None:
                self._extents.pop(ledger, None)
            else:
                self._extents[ledger] = extent
        self._changed |= staged.changed
        self.sweeps.waiting.extend(staged.sweeps)
        for work, outcome in staged.outcomes:
            if isinstance(outcome, PenstockError):
                work.error = outcome
            else:
                work.result = outcome
