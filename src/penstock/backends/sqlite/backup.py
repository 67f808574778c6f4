"""An online copy of the file."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .connection import open_reader, translate
from .folder import sync_folder

STEP_PAGES: Final = 4096  # between two steps other threads get their turn at Python's lock


def copy(file: Path, target: Path) -> None:
    """Copy the storage `file` to `target`, as of one moment; blocks. See `SqliteStore.backup`."""
    if target.exists():
        raise PenstockError(ErrorKind.ALREADY_EXISTS, f"{target} is there already")
    draft = target.with_name(f"{target.name}.part")
    try:
        draft.unlink(missing_ok=True)
        _copy(file, draft)
        with draft.open("rb") as copied:
            os.fsync(copied.fileno())
        draft.rename(target)
        sync_folder(target.parent)
    except (sqlite3.Error, OSError) as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, sqlite3.Error):
            raise translate(error) from None
        raise PenstockError(ErrorKind.UNAVAILABLE, f"{target} cannot be written: {error.strerror}") from None


def _copy(file: Path, draft: Path) -> None:
    with (
        closing(open_reader(file)) as source,
        closing(sqlite3.connect(draft, isolation_level=None)) as copied,
    ):
        # Within one read the source does not change, so that the copying never has to start anew.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copied, pages=STEP_PAGES)
        source.execute("COMMIT")
        copied.execute("PRAGMA journal_mode = DELETE")  # the copy is whole without a file beside it
