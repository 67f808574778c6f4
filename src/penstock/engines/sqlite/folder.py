"""The data folder: its lock, the sizes of its files, and a reserve of disk space.

Acknowledgements, trims and deletes need a little room before they free any. The reserve is a file whose blocks are
allocated. It is removed when the disk is full, and made again before publishes are taken again, so that it is there
for the next time. File systems that copy on write (btrfs, ZFS) may need new blocks all the same.
"""

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

LOCK_NAME: Final = "penstock.lock"
FOLDER_MODE: Final = 0o700  # of a folder that is created here: no other user may read the data
FILE_MODE: Final = 0o600  # also if the folder existed before; SQLite's other files take the same mode

RESERVE_NAME: Final = "penstock.reserve"
PROBE_NAME: Final = "penstock.probe"
PART_OF_DISK: Final = 16  # the reserve is at most the disk size divided by this
LEAST_PART: Final = 4  # nor smaller than its size divided by this
PROBE_BYTES: Final = 4096
ZEROS_BYTES: Final = 1 << 20


class FolderLock:
    """The lock on a data folder, held until `release` or until the process ends, however it ends.

    The lock belongs to the open file, not to the file's being there: a lock file left over means nothing.
    """

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def claim(cls, folder: Path) -> "FolderLock":
        """Create the folder if missing, and lock it; raises UNAVAILABLE."""
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


class Files:
    """SQLite's main file and its write-ahead log; together they stay within `bytes_max`, if given."""

    def __init__(self, main: Path, bytes_max: int | None) -> None:
        self.main = main
        self._wal = main.with_name(f"{main.name}-wal")
        self.bytes_max = bytes_max

    @property
    def wal_bytes(self) -> int:
        """Bytes of the write-ahead log, including data already moved to the main file."""
        return _size(self._wal)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the larger one."""
        return max(_size(self.main), _size(self._wal))

    def outgrown(self) -> bool:
        """Whether they are larger than they may become."""
        return self.bytes_max is not None and _size(self.main) + _size(self._wal) > self.bytes_max


class Reserve:
    """The file in `folder`; `size_bytes` 0: no file."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._file = folder / RESERVE_NAME
        self._size_bytes = size_bytes

    def make(self, keep: int = 0) -> None:
        """Allocate the file, and leave `keep` bytes of the disk; raises OSError, ENOSPC if there is too little.

        A quarter of its size is enough if there is no more: space freed within the storage's files is not
        of the disk.
        """
        folder, size = self._file.parent, self.size_bytes
        if not size:
            self.release()
            if disk_free(folder) < keep:
                raise _no_room(folder)
            return
        file = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        has = os.fstat(file).st_size
        try:
            chosen = min(size, max(0, disk_free(folder) - keep) + has)
            if chosen < max(has, size // LEAST_PART):
                raise _no_room(folder)
            if has != chosen:
                os.ftruncate(file, 0)
                _allocate(file, chosen)
                os.fsync(file)
        except OSError:
            if not has or os.fstat(file).st_size != has:
                self.release()
            raise
        finally:
            os.close(file)

    @property
    def size_bytes(self) -> int:
        """The intended size of the file."""
        return self._size_bytes and min(self._size_bytes, disk_size(self._file.parent) // PART_OF_DISK)

    def release(self) -> bool:
        """Give the room back; whether there was some."""
        try:
            self._file.unlink()
        except OSError:
            return False
        return True


def make_private(file: Path) -> None:
    """Create an empty file that only its owner can read, if there is none."""
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, FILE_MODE))


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a synced file is lost with the name that leads to it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def disk_size(folder: Path) -> int:
    """Bytes of the file system."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def disk_free(folder: Path) -> int:
    """Bytes that this process may still use."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _no_room(folder: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def check_writes(folder: Path, at: int) -> None:
    """Write and sync a block of a separate file, at the position `at`; raises OSError.

    SQLite's error numbers do not distinguish a broken disk from an exhausted quota; the system's do.
    """
    name = folder / PROBE_NAME
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, bytes(PROBE_BYTES), at)
            os.fsync(file)
        finally:
            os.close(file)
    finally:
        with contextlib.suppress(OSError):
            name.unlink()


def _allocate(file: int, size: int) -> None:
    allocate = getattr(os, "posix_fallocate", None)  # macOS has none
    if allocate is not None:
        allocate(file, 0, size)
        return
    for at in range(0, size, ZEROS_BYTES):
        os.pwrite(file, bytes(min(ZEROS_BYTES, size - at)), at)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
