"""The file as the writer sees it: every call of `commit` is one transaction.

What is counted (entries, offsets, ledgers) is counted here in memory, and moves on only after the commit.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.model.errors import PenstockError

from .commits import forget_commit, forget_writers, save_writer
from .connection import BUSY_TIMEOUT_S, WAL_BYTES_MAX, WAL_PAGES, open_writer
from .extent import Extent
from .files import Files
from .logs import append, delete, forget_producers, open_logs, read_again, trim
from .rows import Statement
from .saves import save_cursors, save_meta
from .schema import PAGE_BYTES, STAGING, prepare
from .staged import Changes, Staged
from .stages import commit_stages, drop_stages, repeat_commit, stage, staging_extent
from .sweeps import Sweeps
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
    Trim,
    Work,
)

RESERVE_BYTES: Final = 8 << 20  # for cursors, trims and the like when `size_max_bytes` is reached
PAGES_MAX: Final = 2**32 - 2  # SQLite's own bound
READERS_WAIT_S: Final = 0.1  # how long appends may wait for readers to leave the write-ahead log
SLACK_PAGES: Final = 8  # what is stored may need a few pages more than its bytes
MEASURE_BYTES: Final = 4 << 20  # files are measured once in so many bytes written
WAL_BYTES_USUAL: Final = 2 * WAL_PAGES * PAGE_BYTES  # a longer one has readers, or cannot be moved


class Tables:
    """Owns the connection that writes. All of it belongs to the writer's thread."""

    def __init__(self, file: Path, size_max_bytes: int | None, files_max_bytes: int | None = None) -> None:
        self._extents: dict[int, Extent] = {}  # every log opened so far
        self._changed: Changes = {}
        self.files = Files(file, files_max_bytes)
        self._size_max_bytes = size_max_bytes
        self._broken = False
        self._untended_bytes = 0
        self._measured_bytes = 0
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
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._broken = True

    def tend(self) -> bool:
        """Keep the write-ahead log within its bound; call it now and then. Whether the files outgrew theirs.

        SQLite starts the log anew at the first commit that finds it in the main file and nobody reading it.
        Where there is always a reader, that never happens; so readers have to wait for once.

        Raises sqlite3.Error where the main file cannot be written: SQLite hides it of the checkpoints that it makes
        by itself, and the write-ahead log would grow on and on.
        """
        written = self._untended_bytes
        if self._broken or (written < WAL_BYTES_MAX and written - self._measured_bytes < MEASURE_BYTES):
            return False
        self._measured_bytes = written
        size = self.files.wal_bytes
        if written >= WAL_BYTES_MAX:
            self._untended_bytes = self._measured_bytes = 0
            if size > WAL_BYTES_MAX:
                self._wait(READERS_WAIT_S)
                try:
                    self._checkpoint("TRUNCATE")
                finally:
                    self._wait(BUSY_TIMEOUT_S)
        elif size > WAL_BYTES_USUAL:
            self._checkpoint("PASSIVE")
        return self.files.outgrown()

    def checkpoint(self, mode: str = "PASSIVE") -> None:
        """Move the write-ahead log into the main file, where that is possible."""
        with contextlib.suppress(sqlite3.Error):
            self._checkpoint(mode)  # nothing is lost, the write-ahead log has it; the next one tries again

    def _checkpoint(self, mode: str) -> tuple[int, int, int]:
        """Whether readers were in its way, the pages of the write-ahead log, and how many of them were moved."""
        if self._broken:
            self._connect()
        found: tuple[int, int, int] = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return found

    def probe(self) -> None:
        """Write to both files and sync them, and leave nothing behind; raises sqlite3.Error. See `recover`."""
        if self._broken:
            self._connect()
        with self._transaction():
            self._connection.execute("INSERT INTO meta VALUES ('probe', '', x'')")
            self._connection.execute("DELETE FROM meta WHERE kind = 'probe'")
        self._checkpoint("PASSIVE")

    # -- room

    def has_log(self, topic: str) -> bool:
        """Whether opening the log of `topic` writes nothing."""
        try:
            if self._broken:
                self._connect()
            row = self._connection.execute("SELECT 1 FROM logs WHERE topic = ?", (topic,)).fetchone()
        except sqlite3.Error:
            return False
        return row is not None

    def lacks(self, needed: int) -> bool:
        """Whether the files have less room than `needed` within their bounds."""
        if self._size_max_bytes is None:
            return False
        if self._broken:
            self._connect()
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        used = (pages + SLACK_PAGES) * PAGE_BYTES - self.free_inside()
        return bool(used + needed + needed // 8 > self._size_max_bytes) or self.files.outgrown()

    def free_inside(self) -> int:
        """Bytes of the main file that nothing is stored in."""
        if self._broken:
            self._connect()
        return int(self._connection.execute("PRAGMA freelist_count").fetchone()[0]) * PAGE_BYTES

    def free_in_wal(self) -> int:
        """Bytes of the write-ahead log that may be written over; raises sqlite3.Error where the main file cannot
        take what is in it."""
        busy, pages, moved = self._checkpoint("PASSIVE")
        return self.files.wal_bytes if not busy and pages == moved else 0

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
        self._connection = open_writer(self.files.main)
        try:
            self._limit(self._size_max_bytes)
            self._catch_up()
        except BaseException:
            self._connection.close()
            raise
        self._broken = False

    def _catch_up(self) -> None:
        """Learn what the file holds: a commit that failed may be in it all the same, once its connection is gone."""
        self._next_ledger = self._connection.execute("SELECT ledger FROM next_ledger").fetchone()[0]
        self._changed |= read_again(self._connection, self._extents)
        self._extents[STAGING] = staging_extent(self._connection)
        self.sweeps = Sweeps(self._connection)

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
            case RepeatCommit():
                repeat_commit(self._connection, work, staged)
            case DropStages():
                drop_stages(self._connection, work, staged)
            case SaveWriter():
                save_writer(self._connection, work, staged)
            case ForgetWriters():
                forget_writers(self._connection, work)
            case ForgetCommit():
                forget_commit(self._connection, work, staged)
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
