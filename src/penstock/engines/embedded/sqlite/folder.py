"""The data folder, and the lock by which one server at a time has it."""

import fcntl
import os
from pathlib import Path

from penstock.model.errors import ErrorKind, PenstockError

LOCK_NAME = "penstock.lock"
FOLDER_MODE = 0o700  # of a folder that is made here: what is stored is nobody else's to read
FILE_MODE = 0o600  # also where the folder was there before; SQLite's files beside it follow it


class FolderLock:
    """The lock on a data folder, held until `release` or until the process ends, however it ends.

    The lock belongs to the open file, not to the file's being there: a lock file left over means nothing.
    """

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def claim(cls, folder: Path) -> "FolderLock":
        """Make the folder where it is missing and lock it; raises UNAVAILABLE."""
        try:
            made = not folder.exists()
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            file = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            reason = error.strerror or error
            raise PenstockError(
                ErrorKind.UNAVAILABLE, f"data folder {folder} cannot be used: {reason}"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(file, 32, 0).decode("ascii", "replace").strip()
            os.close(file)
            by = f"process {owner}" if owner else "another process"
            raise PenstockError(ErrorKind.UNAVAILABLE, f"data folder {folder} is in use by {by}") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        if made:
            sync_folder(folder.parent)
        return cls(file)

    def release(self) -> None:
        """Let another server have the folder."""
        os.close(self._file)


def make_private(file: Path) -> None:
    """Make an empty file that only its owner reads, where there is none."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, FILE_MODE))


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a synced file is lost with the name that leads to it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
