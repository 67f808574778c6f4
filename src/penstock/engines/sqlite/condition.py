"""Whether a server could use a data folder: what is looked at before it is opened, without changing it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .connection import open_reader, translate
from .folder import Files
from .schema import VERSION, check_version

_USE: Final = os.R_OK | os.W_OK | os.X_OK


class Condition(msgspec.Struct, frozen=True):
    """Of a folder that can be used."""

    version: int | None  # of the storage in it; None: there is none yet
    newest: int = VERSION  # what a start makes of it


def look(folder: Path, file_name: str) -> Condition:
    """What a server would find in `folder`; raises UNAVAILABLE where it could not use it, with the reason.

    Another server may have the folder: whether one does is not looked at.
    """
    # By os.path: before Python 3.14 Path raises for what is below a folder that this user may not look into.
    there = folder
    while not os.path.exists(there) and there != there.parent:  # noqa: PTH110
        there = there.parent
    if not os.path.isdir(there):  # noqa: PTH112
        raise _unusable(folder, f"{there} is no folder")
    if not os.access(there, _USE):
        raise _unusable(folder, f"{there} is not writable for user {os.geteuid()}")
    file = folder / file_name
    if not os.path.exists(file):  # noqa: PTH110
        return Condition(None)
    if not os.access(file, os.R_OK | os.W_OK):
        raise _unusable(folder, f"{file} is not writable for user {os.geteuid()}")
    written = Files(file.resolve(), None).wal_bytes  # the log lies beside the file that a link leads to
    try:
        with closing(open_reader(file, immutable=not written)) as connection:
            return Condition(check_version(connection))
    except sqlite3.Error as error:
        raise _unusable(folder, translate(error).message) from None
    except PenstockError as error:
        raise _unusable(folder, error.message) from None


def _unusable(folder: Path, reason: str) -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, f"data folder {folder} cannot be used: {reason}")
