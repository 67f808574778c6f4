"""Calls that are made again while a server cannot be reached: one that is started anew ends no query."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.model.errors import PenstockError

T = TypeVar("T")

ATTEMPTS_MAX: Final = 7
BACKOFF_S: Final = 0.1  # doubled each time: about 6 s in all


def patiently(call: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """The result of `call`, made again while what it raises may pass."""
    for attempt in range(ATTEMPTS_MAX - 1):
        try:
            return call()
        except PenstockError as error:
            if not error.retriable:
                raise
        sleep(BACKOFF_S * 2**attempt)
    return call()
