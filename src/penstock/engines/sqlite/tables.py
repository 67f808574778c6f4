"""The file as the writer sees it: every call of `commit` is one transaction.

Counters (entries, offsets, ledgers) are kept here in memory, and advance only after the commit.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.model.errors import PenstockError

from .connection import BUSY_TIMEOUT_S, WAL_BYTES_MAX, WAL_PAGES, open_writer
from .folder import Files
from .logs import Sweeps, append, open_logs, read_again, save_cursors, save_meta
from .schema import PAGE_BYTES, STAGING, number, prepare
from .stages import stage, staging_extent
from .work import (
    Append,
    Change,
    Extent,
    ExtentChanges,
    LimitSize,
    Open,
    SaveCursors,
    SaveMeta,
    Stage,
    Statement,
    Transaction,
    Work,
    apply,
)

RESERVE_BYTES: Final = 8 << 20  # for cursors, trims and the like when `size_max_bytes` is reached
PAGES_MAX: Final = 2**32 - 2  # SQLite's own bound
READERS_WAIT_S: Final = 0.1  # how long appends may wait for readers to leave the write-ahead log
SLACK_PAGES: Final = 8  # data may need a few pages more than its bytes
# once in so many bytes written: a checkpoint; files are measured
MEASURE_BYTES: Final = WAL_PAGES * PAGE_BYTES
COMMIT_BYTES: Final = PAGE_BYTES * 3 // 2  # the overhead of a commit: pages that are not full
SWEEP_BYTES: Final = 16 * PAGE_BYTES  # what a slice of sweeping writes


class Tables:
    """Owns the connection that writes. All of it belongs to the writer's thread."""

    def __init__(self, file: Path, size_max_bytes: int | None, files_max_bytes: int | None = None) -> None:
        self._extents: dict[int, Extent] = {}  # every log opened so far
        self._changed: ExtentChanges = {}
        self.files = Files(file, files_max_bytes)
        self._size_max_bytes = size_max_bytes
        self._untended_bytes = 0
        self._measured_bytes = 0
        self._next_ledger = 0
        self.sweeps: Sweeps
        self._broken = False
        self._connection = open_writer(file)
        try:
            prepare(self._connection)
            self._load()
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
        transaction = Transaction(self._connected(), self._extents, self._next_ledger)
        self._untended_bytes += COMMIT_BYTES + sum([work.size_bytes or PAGE_BYTES for work in works])
        if works[0].mixes:
            self._mixed(works, transaction)
        else:
            with self._transaction():
                for work in works:
                    self._single(work, transaction)
        self._next_ledger = transaction.next_ledger
        apply(transaction.changed, self._extents)
        self._changed |= transaction.changed
        self.sweeps.waiting.extend(transaction.freed)
        for work, outcome in transaction.outcomes:
            if isinstance(outcome, PenstockError):
                work.error = outcome
            else:
                work.result = outcome

    def take_changed(self) -> ExtentChanges:
        """The logs that commits have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def sweep(self) -> None:
        """Free some of the room of entries that were deleted; what `commit` says holds here, too."""
        connection = self._connected()
        with self._transaction():
            left = self.sweeps.sweep(connection)
        self._untended_bytes += SWEEP_BYTES
        self.sweeps.swept(left)

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
        """Move the write-ahead log into the main file when it is time to; call it after each commit, when its
        callers have their answers. Whether the files outgrew their bound.

        SQLite starts the log again at the first commit that finds it in the main file and without a reader.
        If there is always a reader, that never happens; so readers have to wait once.

        Raises sqlite3.Error if the main file cannot be written: SQLite hides this for the checkpoints that it makes
        by itself, and the write-ahead log would grow on and on.
        """
        written = self._untended_bytes
        if self._broken or (written < WAL_BYTES_MAX and written - self._measured_bytes < MEASURE_BYTES):
            return False
        self._measured_bytes = written
        if written >= WAL_BYTES_MAX:
            self._untended_bytes = self._measured_bytes = 0
        if written < WAL_BYTES_MAX or self.files.wal_bytes <= WAL_BYTES_MAX:
            self._checkpoint("PASSIVE")
        else:
            self._wait(READERS_WAIT_S)
            try:
                self._checkpoint("TRUNCATE")
            finally:
                self._wait(BUSY_TIMEOUT_S)
        return self.files.outgrown()

    def checkpoint(self, mode: str = "PASSIVE") -> None:
        """Move the write-ahead log into the main file, if possible."""
        with contextlib.suppress(sqlite3.Error):
            self._checkpoint(mode)  # nothing is lost, the write-ahead log has it; the next one tries again

    def _checkpoint(self, mode: str) -> tuple[int, int, int]:
        """Whether readers were in its way, the pages of the write-ahead log, and how many of them were moved."""
        found: tuple[int, int, int] = self._connected().execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return found

    def probe(self) -> None:
        """Write to both files and sync them, and leave nothing behind; raises sqlite3.Error. See `recover`."""
        connection = self._connected()
        with self._transaction():
            connection.execute("INSERT INTO meta VALUES ('probe', '', x'')")
            connection.execute("DELETE FROM meta WHERE kind = 'probe'")
        self._checkpoint("PASSIVE")

    # -- room

    def has_log(self, topic: str) -> bool:
        """Whether opening the log of `topic` writes nothing."""
        try:
            row = self._connected().execute("SELECT 1 FROM logs WHERE topic = ?", (topic,)).fetchone()
        except sqlite3.Error:
            return False
        return row is not None

    def lacks(self, needed: int) -> bool:
        """Whether the files have less room than `needed` within their bounds."""
        if self._size_max_bytes is None:
            return False
        pages = number(self._connected(), "PRAGMA page_count")
        used = (pages + SLACK_PAGES) * PAGE_BYTES - self.free_inside()
        return used + needed + needed // 8 > self._size_max_bytes or self.files.outgrown()

    def free_inside(self) -> int:
        """Bytes of the main file that nothing is stored in."""
        return number(self._connected(), "PRAGMA freelist_count") * PAGE_BYTES

    def free_in_wal(self) -> int:
        """Bytes of the write-ahead log that may be overwritten; raises sqlite3.Error if the main file cannot
        take its content."""
        busy, pages, moved = self._checkpoint("PASSIVE")
        return self.files.wal_bytes if not busy and pages == moved else 0

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Let the file grow a little beyond its bound."""
        self._connected()
        if self._size_max_bytes is None:
            yield
            return
        self._limit(self._size_max_bytes + RESERVE_BYTES)
        try:
            yield
        finally:
            self._limit(self._size_max_bytes)

    def _connected(self) -> sqlite3.Connection:
        """The connection; a new one if `recover` closed the last."""
        if self._broken:
            self._connection = open_writer(self.files.main)
            try:
                self._load()
            except BaseException:
                self._connection.close()
                raise
            self._broken = False
        return self._connection

    def _load(self) -> None:
        """Learn what the file holds: a commit that failed may be in it all the same, once its connection is gone."""
        self._limit(self._size_max_bytes)
        self._next_ledger = number(self._connection, "SELECT ledger FROM next_ledger")
        if self._extents:
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

    def _mixed(self, works: Sequence[Work], transaction: Transaction) -> None:
        of: dict[type[Work], list[Any]] = {Append: [], Stage: [], SaveCursors: [], SaveMeta: [], Open: []}
        for work in works:
            of[type(work)].append(work)
        opens: list[Open] = of[Open]
        statements: list[Statement] = [
            *append(of[Append], transaction),
            *stage(of[Stage], transaction),
            *save_cursors(of[SaveCursors], transaction),
            *save_meta(of[SaveMeta]),
        ]
        if len(statements) == 1 and not opens:
            self._connection.execute(*statements[0])  # a transaction by itself, and in one step
        elif statements or opens:
            with self._transaction():
                open_logs(opens, transaction)
                transaction.execute(statements)

    def _single(self, work: Work, transaction: Transaction) -> None:
        match work:
            case Change():
                try:
                    outcome = work.call(transaction, *work.args, **work.kwargs)
                except PenstockError as refusal:
                    outcome = refusal
                transaction.outcomes.append((work, outcome))
            case LimitSize():
                self._limit(work.size_max_bytes)
                self._size_max_bytes = work.size_max_bytes
            case _:
                raise TypeError(f"{type(work).__name__} has no statement")
