"""SQLite's two files, by their sizes."""

from pathlib import Path


class Files:
    """The main file and its write-ahead log; together they are to stay within `bytes_max`, where it is given."""

    def __init__(self, main: Path, bytes_max: int | None) -> None:
        self.main = main
        self._wal = main.with_name(f"{main.name}-wal")
        self.bytes_max = bytes_max

    @property
    def wal_bytes(self) -> int:
        """Bytes of the write-ahead log, what was moved to the main file included."""
        return _size(self._wal)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the larger one."""
        return max(_size(self.main), _size(self._wal))

    def outgrown(self) -> bool:
        """Whether they are larger than they may become."""
        return self.bytes_max is not None and _size(self.main) + _size(self._wal) > self.bytes_max


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
