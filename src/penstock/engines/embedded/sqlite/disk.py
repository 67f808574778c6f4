"""What the writer knows of its disk: whether writing fails, why, and when to try again.

A problem begins with the first commit that fails for the disk's sake. From then on what asks for room is refused
without a try. Each publish would else try for itself: small ones would succeed on a disk that has no room for large
ones, and a client whose producer is let in again and again never gives up. The problem ends when a probe succeeds,
which writes and syncs both of SQLite's files and wants room for what failed; it comes by itself, so that an idle
server recovers.
"""

import contextlib
import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from penstock.engines.embedded.runtime.storage_health import (
    Cause,
    Problem,
    StorageFiles,
    StorageHealth,
)
from penstock.model.errors import ErrorKind, PenstockError

from .connection import WAL_PAGES, translate
from .reserve import PART_OF_DISK, Reserve, check_writes, disk_free, disk_size
from .schema import PAGE_BYTES
from .tables import Tables
from .work import Append, CommitStages, Open, Stage, Work

PROBE_FIRST_S: Final = 0.1  # then twice as long each time
PROBE_MAX_S: Final = 5.0
SAME_S: Final = 10.0
NEEDED_MAX: Final = 16 << 20  # room that a probe wants at most: a commit of many stages may ask for more
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_PUBLISHES: Final = (Append, Stage, CommitStages)


class Disk:
    """For the writer's thread only; `report` reaches `health` on the loop."""

    def __init__(
        self, file: Path, reserve_bytes: int, health: StorageHealth, report: Callable[..., object]
    ) -> None:
        self.problem: Problem | None = None
        self._file = file
        self._folder = file.parent
        self._reserve = Reserve(self._folder, reserve_bytes)
        self._health = health
        self._report = report
        self._needed = 0
        self._inside = False  # the disk has no room for the reserve, but the files have
        self._wait_s = PROBE_FIRST_S
        self._next = 0.0
        self._well_since = -SAME_S

    def open(self, size_max_bytes: int | None, files_max_bytes: int | None) -> Tables:
        """Open the file; on a full disk the reserve gives the room that opening needs."""
        try:
            tables = Tables(self._file, size_max_bytes, files_max_bytes)
        except sqlite3.Error:
            if not self._reserve.release():
                raise
            tables = Tables(self._file, size_max_bytes, files_max_bytes)
        try:
            self._reserve.make()
        except OSError as error:
            self._begin(
                _cause(error.errno), error.errno, f"no room for {self._folder}'s reserve: {error.strerror}"
            )
        return tables

    # -- a failure

    def failed(self, tables: Tables, error: BaseException, works: list[Work]) -> PenstockError:
        """A commit of `works` failed with what is not their fault: what they are told."""
        told = translate(error)
        if told.kind not in (ErrorKind.STORAGE_FULL, ErrorKind.STORAGE_FAILED):
            damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            )
            self._report(self._health.commit_failed, "damaged" if damaged else "other")
            return told
        needed = sum([work.needed_bytes for work in works])
        cause, number = self._diagnose(tables, told.kind, needed)
        self._report(self._health.commit_failed, cause)
        self._begin(cause, number, str(error))
        self._needed = max(self._needed, min(needed, NEEDED_MAX))
        assert self.problem is not None
        if self.problem.error.kind is ErrorKind.STORAGE_FAILED:
            self._count(works)  # else some are tried again, and `admitted` counts the rest
        return self._error()

    def _diagnose(self, tables: Tables, kind: ErrorKind, needed: int) -> tuple[Cause, int | None]:
        """Why, and the system's number for it."""
        if self.problem is not None and self.problem.cause != "limit":
            return self.problem.cause, self.problem.errno  # the probe looks whether it is another by now
        with contextlib.suppress(sqlite3.Error):
            if kind is ErrorKind.STORAGE_FULL and tables.lacks(needed):
                return "limit", None
        try:
            check_writes(self._folder, tables.files.largest_bytes)
        except OSError as error:
            return _cause(error.errno), error.errno
        return ("full", errno.ENOSPC) if kind is ErrorKind.STORAGE_FULL else ("io", None)

    def outgrown(self) -> None:
        """The files are larger than they may become."""
        self._begin("limit", None, "the write-ahead log has grown under a long read")

    def _begin(self, cause: Cause, number: int | None, reason: str) -> None:
        if self.problem is not None and self.problem.cause == cause:
            return
        if self.problem is None:
            # Soon after the last problem it is the same one, and the probe was too easy.
            same = monotonic() - self._well_since < SAME_S
            self._wait_s = min(2 * self._wait_s, PROBE_MAX_S) if same else PROBE_FIRST_S
            self._needed = min(2 * self._needed, NEEDED_MAX) if same else 0
            self._next = monotonic() + self._wait_s
        kind, what = _TOLD[cause]
        self.problem = Problem(cause, PenstockError(kind, f"{what}: {reason}"), str(self._file), number)
        self._report(self._health.failed, self.problem)

    # -- while it lasts

    def admitted(self, tables: Tables, works: list[Work]) -> list[Work]:
        """Those of `works` that may still be tried; the others get their error."""
        assert self.problem is not None
        chosen: list[Work] = []
        for work in works:
            if not work.grows or (isinstance(work, Open) and tables.has_log(work.topic)):
                chosen.append(work)
            else:
                work.error = self._error()
        self._count([work for work in works if work.error is not None])
        return chosen

    def _error(self) -> PenstockError:
        assert self.problem is not None
        return self.problem.new_error()

    def _count(self, works: list[Work]) -> None:
        refused = sum([isinstance(work, _PUBLISHES) for work in works])
        if refused:
            self._report(self._health.refuse, refused)

    def release(self) -> bool:
        """Give the reserve back, for what is tried next; whether there was one. Not before it is needed: other
        programs would take it."""
        return self.problem is not None and self.problem.cause == "full" and self._reserve.release()

    @property
    def wait_s(self) -> float | None:
        """How long until the next probe; None while all is well."""
        return None if self.problem is None else max(0.0, self._next - monotonic())

    def probe(self, tables: Tables, *, now: bool = False) -> None:
        """See whether the problem is over, when it is time to, or `now`."""
        if self.problem is None or not (now or monotonic() >= self._next):
            return
        try:
            over = self._over(tables)
        except Exception as error:  # whatever it is: the writer must not end
            tables.recover()
            over = False
            if isinstance(error, OSError):
                self._begin(_cause(error.errno), error.errno, str(error.strerror))
        if over:
            self.problem = None
            self._well_since = monotonic()
            self._report(self._health.recovered)
        elif not now:
            self._wait_s = min(2 * self._wait_s, PROBE_MAX_S)
            self._next = monotonic() + self._wait_s

    def _over(self, tables: Tables) -> bool:
        assert self.problem is not None
        if self.problem.cause == "limit":
            return not tables.lacks(self._needed)
        # What was freed within the files is no room of the disk, and does as well.
        file = max(0, self._needed - tables.free_inside())
        wal = min(WAL_PAGES * PAGE_BYTES, disk_size(self._folder) // PART_OF_DISK) + self._needed
        wal = max(0, wal - tables.free_in_wal())
        try:
            self._reserve.make(keep=file + wal)
            check_writes(self._folder, tables.files.largest_bytes + self._needed)
            self._inside = False
        except OSError as error:
            room = tables.free_inside() >= self._reserve.size_bytes + self._needed
            if error.errno not in _FULL or not room or disk_free(self._folder) < wal:
                raise
            self._inside = True
        tables.probe()
        return True

    def look_inside(self, tables: Tables) -> None:
        """After a commit on a disk that has no room for the reserve: room within the files takes its place."""
        if not self._inside or self.problem is not None:
            return
        if monotonic() >= self._next:
            self._next = monotonic() + PROBE_MAX_S
            with contextlib.suppress(OSError):
                self._reserve.make(keep=WAL_PAGES * PAGE_BYTES)
                self._inside = False
                return
        if tables.free_inside() < self._reserve.size_bytes:
            self._begin("full", errno.ENOSPC, "what is left is kept for acknowledgements and deletes")
            self._needed = PAGE_BYTES

    # -- at any time, in any thread

    def files(self, size_max_bytes: int | None) -> StorageFiles:
        """What the storage has on its disk."""
        size = 0
        for file in self._folder.glob("penstock.*"):
            with contextlib.suppress(OSError):  # some come and go
                size += file.stat().st_size
        return StorageFiles(size, size_max_bytes or 0, disk_free(self._folder))


def _cause(number: int | None) -> Cause:
    return "full" if number in _FULL else "io"


_TOLD: Final[dict[Cause, tuple[ErrorKind, str]]] = {
    "io": (ErrorKind.STORAGE_FAILED, "the storage cannot be written"),
    "full": (ErrorKind.STORAGE_FULL, "the disk of the storage is full"),
    "limit": (ErrorKind.STORAGE_FULL, "the storage has no room within its bound (storage.size_max_bytes)"),
}
