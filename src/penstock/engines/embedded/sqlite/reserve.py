"""Room on the disk that is given back when the disk is full, and what the disk has left.

Acknowledgements, trims and deletes need a little room before they free any. The reserve is a file whose blocks are
allocated. It is removed when the disk is full, and made again before publishes are taken again, so that it is there
for the next time. File systems that copy on write (btrfs, ZFS) may need new blocks all the same.
"""

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

RESERVE_NAME: Final = "penstock.reserve"
PROBE_NAME: Final = "penstock.probe"
PART_OF_DISK: Final = 16  # the reserve is no larger than the disk divided by this
LEAST_PART: Final = 4  # nor smaller than its size divided by this
PROBE_BYTES: Final = 4096
ZEROS_BYTES: Final = 1 << 20


class Reserve:
    """The file in `folder`; `size_bytes` 0: there is none."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._file = folder / RESERVE_NAME
        self._size_bytes = size_bytes

    def make(self, keep: int = 0) -> None:
        """Allocate the file, and leave `keep` bytes of the disk; raises OSError, ENOSPC where there is too little.

        A quarter of its size does where there is no more: room that was freed within the storage's files is none
        of the disk.
        """
        folder, size = self._file.parent, self.size_bytes
        if not size:
            self.release()
            check_room(folder, keep)
            return
        file = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        has = os.fstat(file).st_size
        try:
            chosen = min(size, max(0, disk_free(folder) - keep) + has)
            if chosen < max(has, size // LEAST_PART):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
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
        """How large the file is to be."""
        return self._size_bytes and min(self._size_bytes, disk_size(self._file.parent) // PART_OF_DISK)

    def release(self) -> bool:
        """Give the room back; whether there was some."""
        try:
            self._file.unlink()
        except OSError:
            return False
        return True


def disk_size(folder: Path) -> int:
    """Bytes of the file system."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def disk_free(folder: Path) -> int:
    """Bytes that this process may still use."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def check_room(folder: Path, size_bytes: int) -> None:
    """Raise OSError (ENOSPC) unless the disk has so much left."""
    if disk_free(folder) < size_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def check_writes(folder: Path, at: int) -> None:
    """Write and sync a block of a file of its own, at the position `at`; raises OSError where that fails.

    SQLite's error numbers do not tell a disk that is broken from a quota that is used up; the system's do.
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
