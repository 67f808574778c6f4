"""An online copy of the file, and putting one in its place."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .connection import open_reader, translate
from .folder import LOCK_NAME, FolderLock, make_private, sync_folder
from .schema import APPLICATION_ID, VERSION, number

STEP_PAGES: Final = 4096  # between two steps other threads get their turn at Python's lock

Progress = Callable[[int, int], None]  # pages done, of how many


def copy(file: Path, target: Path, progress: Progress = lambda *_: None) -> None:
    """Copy the storage `file` to `target`, as of one moment; blocks. See `SqliteStore.backup`.

    It may be called in another process than the server's.
    """
    if target.exists():
        raise PenstockError(ErrorKind.ALREADY_EXISTS, f"{target} is there already")
    draft = target.with_name(f"{target.name}.part")
    try:
        draft.unlink(missing_ok=True)
        _copy(file, draft, progress)
        _put_in_place(draft, target)
    except (sqlite3.Error, OSError) as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise translate(error) from None
        raise PenstockError(ErrorKind.UNAVAILABLE, f"{target} cannot be written: {error.strerror}") from None


def _copy(file: Path, draft: Path, progress: Progress) -> None:
    make_private(draft)  # it holds all that the storage does
    with (
        closing(open_reader(file)) as source,
        closing(sqlite3.connect(draft, isolation_level=None)) as copied,
    ):
        # Within one read the source does not change, so that the copying never has to start again.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copied, pages=STEP_PAGES, progress=lambda _, left, total: progress(total - left, total))
        source.execute("COMMIT")
        copied.execute("PRAGMA journal_mode = DELETE")  # the copy is complete without a second file


def restore(backup: Path, folder: Path, file_name: str, *, force: bool = False) -> None:
    """Make the file `backup` the storage of `folder`, which is created if missing; blocks.

    Raises UNAVAILABLE for a folder in use, ALREADY_EXISTS for one that is not empty unless `force`, which deletes
    what was in it, and BAD_PARAMETER for a file that is not a complete backup; then nothing is changed.
    """
    _check(backup)
    lock = FolderLock.claim(folder)
    try:
        there = sorted(path.name for path in folder.iterdir() if path.name != LOCK_NAME)
        if there and not force:
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS,
                f"{folder} is not empty ({', '.join(there[:3])}): give --force to give up what is in it",
            )
        file = folder / file_name
        draft = file.with_name(f"{file_name}.part")
        draft.unlink(missing_ok=True)
        make_private(draft)
        shutil.copyfile(backup, draft)
        # What belongs to the old file must be gone first: SQLite would take it for the new one's.
        for suffix in ("", "-wal", "-shm", "-journal"):
            file.with_name(file_name + suffix).unlink(missing_ok=True)
        sync_folder(folder)
        _put_in_place(draft, file)
    except OSError as error:
        raise PenstockError(ErrorKind.UNAVAILABLE, f"{folder} cannot be written: {error.strerror}") from None
    finally:
        lock.release()


def _check(backup: Path) -> None:
    """Raise unless the file is a whole storage that this Penstock can read."""
    if not backup.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is no file {backup}")
    try:
        with closing(open_reader(backup)) as connection:
            owner = number(connection, "PRAGMA application_id")
            version = number(connection, "PRAGMA user_version")
            said = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{backup} is no whole backup: {error}") from None
    if owner != APPLICATION_ID:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{backup} was not written by Penstock")
    if version > VERSION:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"{backup} has version {version}, written by a newer Penstock; this one knows {VERSION}",
        )
    if said != "ok":
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{backup} is no whole backup: {said}")


def _put_in_place(draft: Path, target: Path) -> None:
    """Make a finished file durable, and then its name."""
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    draft.rename(target)
    sync_folder(target.parent)
