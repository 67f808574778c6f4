"""What the process has of the system: files, of which a connection is one, and memory.

glibc keeps memory that is freed for later, and after a rush that may be most of what the server had. It is made to
give it back once the process has much more than before and holds much less than that; that takes milliseconds, in a
thread.
"""

import asyncio
import ctypes
import logging
import os
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.protocols.load import Load

log = logging.getLogger(__name__)

OTHER_FILES: Final = 256  # files other than connections: the store, logs, sockets being accepted
RUSH_BYTES: Final = 16 * 1024 * 1024  # more than before: less is not worth the pause
# About what a TLS handshake has while it lasts; it is not counted as held.
HANDSHAKE_BYTES: Final = 128 * 1024
# Looks, since a rush was seen to be over, that give back: what goes may go slowly.
LOOKS: Final = 0, 1, 2, 4, 8, 16, 32


def allow_connections(connections: int) -> int:
    """Raise the soft limit as far as so many connections need and the hard limit lets; returns what it is now.

    If that is too little, the log says so: connections beyond it are not accepted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    except (OSError, ValueError) as error:  # macOS has a separate limit below an unlimited one
        log.warning("the limit of open files stays", extra={"files": soft, "reason": str(error)})
        return soft
    if allowed < wanted:
        log.warning(
            "the system lets fewer connections in than limits.max_connections",
            extra={"files": allowed, "wanted": wanted, "remedy": "ulimit -Hn"},
        )
    return max(soft, allowed)


class Trimming:
    """Looks now and then at what the process has (`resident`, bytes) and holds; `trim` gives memory back."""

    def __init__(self, load: Load, trim: Callable[[], object], resident: Callable[[], int]) -> None:
        self._load = load
        self._trim = trim
        self._resident = resident
        self._calm = resident()  # what it has when it holds nothing
        self._looks: int | None = None  # since the last rush was over
        self._stays = 0  # the least beyond it since then: another rush may be under way at the last look
        self._executor = ThreadPoolExecutor(1, "penstock-trim")

    def look(self) -> None:
        """Called now and then."""
        load = self._load
        held = load.held + load.unwritten + load.handshakes * HANDSHAKE_BYTES
        resident = self._resident()
        self._calm = min(self._calm, resident)
        more = resident - self._calm
        if self._looks is None:
            if more > min(RUSH_BYTES, load.bytes_max // 4) and held < more // 2:
                self._looks, self._stays = 0, more
        elif self._looks < LOOKS[-1]:
            self._looks += 1
            self._stays = min(self._stays, max(0, more - held))
        else:
            self._looks = None
            self._calm += self._stays
        if self._looks in LOOKS:
            asyncio.get_running_loop().run_in_executor(self._executor, self._trim)


def trimming_of(load: Load) -> Trimming | None:
    """The function that returns free memory to the system; None if the system has nothing of the kind."""
    if sys.platform != "linux":
        return None
    try:
        trim = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
    statm, page = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")
    return Trimming(load, lambda: trim(0), lambda: int(statm.read_bytes().split()[1]) * page)
