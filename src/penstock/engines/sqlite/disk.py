"""What the writer knows of its disk: whether writing fails, why, and when to try again.

A problem begins with the first commit that fails for the disk's sake. From then on what asks for room is refused
without a try. Each publish would else try for itself: small ones would succeed on a disk that has no room for large
ones, and a client whose producer is let in again and again never gives up. The problem ends when a probe succeeds,
which writes and syncs both of SQLite's files and wants room for what failed; it comes by itself, so that an idle
server recovers.
"""

import asyncio
import contextlib
import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from penstock.broker.storage_health import STORAGE_KINDS, Cause, Problem, StorageFiles, StorageHealth
from penstock.model.errors import ErrorKind, PenstockError

from .connection import WAL_PAGES, translate
from .folder import PART_OF_DISK, Reserve, check_writes, disk_free, disk_size
from .schema import PAGE_BYTES
from .stages import commit_stages, save_writer
from .tables import Tables
from .work import Append, Open, Stage, Work

PROBE_FIRST_S: Final = 0.1  # then twice as long each time
PROBE_MAX_S: Final = 5.0
SAME_S: Final = 10.0
NEEDED_MAX: Final = 16 << 20  # room that a probe wants at most: a commit of many stages may ask for more
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

# Kinds of work: publishes and other writes that are refused when the disk is full. Other work may use the reserve.
_PUBLISHES: Final = frozenset((Append, Stage, commit_stages))
_GROWS: Final = frozenset((*_PUBLISHES, Open, save_writer))

_PROBLEMS: Final[dict[Cause, tuple[ErrorKind, str]]] = {
    "io": (ErrorKind.STORAGE_FAILED, "the storage cannot be written"),
    "full": (ErrorKind.STORAGE_FULL, "the disk of the storage is full"),
    "limit": (ErrorKind.STORAGE_FULL, "the storage has no room within its bound (storage.size_max_bytes)"),
}


class Bounds(msgspec.Struct, frozen=True):
    """How much of its disk a store may have, in bytes. None: as much as there is.

    `size_max_bytes` bounds the main file, `files_max_bytes` it together with the write-ahead log, which grows under
    long reads. `reserve_bytes` are reserved on the disk for what frees room when it is full. `total_bytes` is the
    configured bound of all of it, as it is shown.
    """

    size_max_bytes: int | None = None
    files_max_bytes: int | None = None
    reserve_bytes: int = 0
    total_bytes: int | None = None


class Disk:
    """For the writer's thread only; results are reported to `health` on the loop, on which it is created."""

    def __init__(self, file: Path, bounds: Bounds, health: StorageHealth) -> None:
        self.file = file
        self.problem: Problem | None = None
        self._folder = file.parent
        self._bounds = bounds
        self._reserve = Reserve(self._folder, bounds.reserve_bytes)
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._needed = 0
        self._inside = False  # the disk has no room for the reserve, but the files have
        self._wait_s = PROBE_FIRST_S
        self._next = 0.0
        self._well_since = -SAME_S
        health.files = self._files

    def report(self, call: Callable[..., object], *arguments: object) -> None:
        """Have `call` called on the loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def open(self) -> Tables:
        """Open the file; on a full disk the reserve gives the room that opening needs."""
        bounds = self._bounds.size_max_bytes, self._bounds.files_max_bytes
        try:
            tables = Tables(self.file, *bounds)
        except sqlite3.Error:
            if not self._reserve.release():
                raise
            tables = Tables(self.file, *bounds)
        try:
            self._reserve.make()
        except OSError as error:
            self._begin(
                _cause(error.errno), error.errno, f"no room for {self._folder}'s reserve: {error.strerror}"
            )
        return tables

    # -- a failure

    def failed(self, tables: Tables, error: BaseException, works: list[Work]) -> PenstockError:
        """A commit of `works` failed with an error that they did not cause: the error for their callers."""
        translated = translate(error)
        if translated.kind not in STORAGE_KINDS:
            damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            )
            self.report(self._health.commit_failed, "damaged" if damaged else "other")
            return translated
        needed = sum([work.needed_bytes for work in works])
        cause, number = self._diagnose(tables, translated.kind, needed)
        self.report(self._health.commit_failed, cause)
        self._begin(cause, number, str(error))
        self._needed = max(self._needed, min(needed, NEEDED_MAX))
        assert self.problem is not None
        if self.problem.error.kind is ErrorKind.STORAGE_FAILED:
            self._count(works)  # else some are tried again, and `admitted` counts the rest
        return self.problem.new_error()

    def _diagnose(self, tables: Tables, kind: ErrorKind, needed: int) -> tuple[Cause, int | None]:
        """Why, and the system's number for it."""
        if self.problem is not None and not self.limited:
            return self.problem.cause, self.problem.errno  # the probe looks whether it is another by now
        with contextlib.suppress(sqlite3.Error):
            if kind is ErrorKind.STORAGE_FULL and tables.lacks(needed):
                return "limit", None
        try:
            check_writes(self._folder, tables.files.largest_bytes)
        except OSError as error:
            return _cause(error.errno), error.errno
        return ("full", errno.ENOSPC) if kind is ErrorKind.STORAGE_FULL else ("io", None)

    @property
    def limited(self) -> bool:
        """Whether the storage is at its bound."""
        return self.problem is not None and self.problem.cause == "limit"

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
        kind, what = _PROBLEMS[cause]
        self.problem = Problem(cause, PenstockError(kind, f"{what}: {reason}"), str(self.file), number)
        self.report(self._health.failed, self.problem)

    # -- while it lasts

    def admitted(self, tables: Tables, works: list[Work]) -> list[Work]:
        """Those of `works` that may still be tried; the others get their error."""
        assert self.problem is not None
        chosen: list[Work] = []
        for work in works:
            if work.kind not in _GROWS or (isinstance(work, Open) and tables.has_log(work.topic)):
                chosen.append(work)
            else:
                work.error = self.problem.new_error()
        self._count([work for work in works if work.error is not None])
        return chosen

    def _count(self, works: list[Work]) -> None:
        refused = sum([work.kind in _PUBLISHES for work in works])
        if refused:
            self.report(self._health.refuse, refused)

    def release(self) -> bool:
        """Release the reserve for the next attempt; returns whether there was one. Not before it is needed: other
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
            self.report(self._health.recovered)
        elif not now:
            self._wait_s = min(2 * self._wait_s, PROBE_MAX_S)
            self._next = monotonic() + self._wait_s

    def _over(self, tables: Tables) -> bool:
        assert self.problem is not None
        if self.limited:
            return not tables.lacks(self._needed)
        # Space freed within the files is not disk space, and is as good.
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

    def _files(self) -> StorageFiles:
        """What the storage has on its disk. In any thread."""
        size = 0
        for file in self._folder.glob("penstock.*"):
            with contextlib.suppress(OSError):  # some come and go
                size += file.stat().st_size
        return StorageFiles(size, self._bounds.total_bytes or 0, disk_free(self._folder))


def _cause(number: int | None) -> Cause:
    return "full" if number in _FULL else "io"
