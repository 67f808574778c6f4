"""A file that is read again when it changes."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from .settings import AuthConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_MS: Final = 1000  # a change counts after this at the latest
BYTES_MAX: Final = 16 << 20


class WatchedFile(Generic[T]):
    """What a file holds, as `read` understands it; `version` counts the changes.

    A file that cannot be read at first is refused; one that breaks later keeps what it held.
    """

    def __init__(self, key: str, path: str, read: Callable[[bytes], T], now_ms: Callable[[], int]) -> None:
        self._key = key
        self._path = Path(path).expanduser()
        self._read = read
        self._now_ms = now_ms
        self._looked_ms = now_ms()
        self._mark: object = None  # of the last read version, valid or not
        self.version = 0
        self.value = self._load()

    def refresh(self, *, at_once: bool = False) -> None:
        """Read the file again if it changed; looks at most once in `LOOK_MS`, unless `at_once`."""
        now = self._now_ms()
        if not at_once and now - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now
        try:
            mark = self._stat()
            if mark == self._mark:
                return
            self._mark = mark  # an invalid file is read and reported once: any client can trigger the read
            self.value = self._load()
        except (AuthConfigError, OSError) as error:
            if isinstance(error, OSError):
                if self._mark is None:
                    return
                self._mark = None
            log.error("a file of credentials cannot be read; the one before counts: %s", error)
            return
        self.version += 1
        log.info("read a file of credentials again", extra={"file": str(self._path)})

    def _stat(self) -> object:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def _load(self) -> T:
        try:
            mark = self._stat()
            with self._path.open("rb") as file:
                content = file.read(BYTES_MAX)
        except OSError as error:
            raise AuthConfigError(f"{self._key}: {self._path} cannot be read: {error.strerror}") from None
        try:
            value = self._read(content)
        except ValueError as error:
            raise AuthConfigError(f"{self._key}: {self._path} {error}") from None
        self._mark = mark
        return value
