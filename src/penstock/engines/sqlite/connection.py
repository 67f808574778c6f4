"""Connections to the file, and SQLite's errors in the project's words."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .folder import make_private
from .schema import PAGE_BYTES

# 4 MiB between checkpoints: each is short, which counts more than a tenth of the throughput. The writer makes them
# between commits (`Tables.tend`); SQLite would make them within one, before its callers have their answer.
WAL_PAGES: Final = 512
# SQLite checkpoints if commits wrote more than the writer estimates
WAL_PAGES_UNSEEN: Final = 2 * WAL_PAGES
# if readers prevent the log from restarting, they have to pause; see `tend`
WAL_BYTES_MAX: Final = 32 << 20
WRITER_CACHE_BYTES: Final = 16 << 20
READER_CACHE_BYTES: Final = 4 << 20
BUSY_TIMEOUT_S: Final = 5.0  # another program may look into the file
STATEMENTS_CACHED: Final = 256
SQLITE_MIN: Final = (3, 32, 0)  # earlier ones take 999 parameters a statement

# What a full or failing disk, and not the request, is to blame for. A disk that its system took for broken is
# often remounted read-only; a file that cannot be opened is one of the write-ahead log, as the main file is open.
_FAILED: Final = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN))
_DAMAGED: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_SURROUNDINGS: Final = frozenset(
    (
        sqlite3.SQLITE_FULL,
        *_FAILED,
        *_DAMAGED,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    )
)


def open_writer(file: Path) -> sqlite3.Connection:
    """The only connection that writes and that makes checkpoints; used in one thread."""
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise PenstockError(
            ErrorKind.UNAVAILABLE,
            f"Python has SQLite {sqlite3.sqlite_version}; {'.'.join(map(str, SQLITE_MIN))} is needed",
        )
    with contextlib.suppress(OSError):  # SQLite says why better
        make_private(file)
    return _configured(
        sqlite3.connect(
            file, timeout=BUSY_TIMEOUT_S, isolation_level=None, cached_statements=STATEMENTS_CACHED
        ),
        f"page_size = {PAGE_BYTES}",  # of use in a new file only
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = ON",  # macOS: reach the disk, not its cache only
        "secure_delete = OFF",  # some builds overwrite deleted data, at twice the cost
        f"cache_size = {-WRITER_CACHE_BYTES // 1024}",
        f"wal_autocheckpoint = {WAL_PAGES_UNSEEN}",
        f"journal_size_limit = {WAL_BYTES_MAX}",
    )


def open_reader(file: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """A connection that cannot write. It may be closed by another thread than the one that uses it.

    Even so SQLite creates missing files of the write-ahead log, and leaves them there. With `immutable`
    it makes none, and reads none: nothing may be in that log.
    """
    return _configured(
        sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        ),
        f"cache_size = {-READER_CACHE_BYTES // 1024}",
    )


def _configured(connection: sqlite3.Connection, *pragmas: str) -> sqlite3.Connection:
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def blames_surroundings(error: BaseException) -> bool:
    """Whether another request would have failed in the same way."""
    return isinstance(error, sqlite3.Error) and _code(error) in _SURROUNDINGS


def translate(error: BaseException) -> PenstockError:
    """The project's error for one that SQLite or the work on it raised."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code == sqlite3.SQLITE_FULL:
            return PenstockError(ErrorKind.STORAGE_FULL, f"the storage has no room: {error}")
        if code in _FAILED:
            return PenstockError(ErrorKind.STORAGE_FAILED, f"the storage fails: {error}")
        if code in _DAMAGED:
            return PenstockError(ErrorKind.UNAVAILABLE, f"the storage is damaged: {error}")
        if code in _SURROUNDINGS:
            return PenstockError(ErrorKind.UNAVAILABLE, f"the storage cannot be used now: {error}")
    return PenstockError(ErrorKind.INTERNAL, f"the storage failed: {type(error).__name__}: {error}")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; errors of the Python module itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
