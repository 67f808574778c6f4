"""Memory that was let go of, given back to the system.

glibc keeps what is freed for later, and after a rush that may be most of what the server had. It is told to give it
back once much less is held than before; that takes milliseconds, in a thread.
"""

import asyncio
import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.protocols.load import Load

RUSH_BYTES: Final = 16 * 1024 * 1024  # held at a time: less leaves little behind
HANDSHAKE_BYTES: Final = (
    128 * 1024
)  # about what a TLS handshake has while it lasts, that is not counted as held
LOOKS: Final = 3  # in a row that give back


class Trimming:
    """Looks now and then at what is held; `trim` gives memory back."""

    def __init__(self, load: Load, trim: Callable[[], object] | None) -> None:
        self._load = load
        self._trim = trim
        self._most = 0  # held at a time, since the last trim
        self._left = 0  # looks that give back
        self._executor = ThreadPoolExecutor(1, "penstock-trim")

    def look(self) -> None:
        """Called now and then."""
        load = self._load
        held = load.held + load.unwritten + load.handshakes * HANDSHAKE_BYTES
        self._most = max(self._most, held)
        if self._most > min(RUSH_BYTES, load.bytes_max // 4) and held < self._most // 2:
            self._most = held
            self._left = LOOKS  # what goes may still be going
        if self._left and self._trim is not None:
            self._left -= 1
            asyncio.get_running_loop().run_in_executor(self._executor, self._trim)


def trim_of_system() -> Callable[[], object] | None:
    """What gives memory back; None where the system has nothing of the kind."""
    if sys.platform != "linux":
        return None
    try:
        found = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
    return lambda: found(0)
