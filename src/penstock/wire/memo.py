"""A bounded memory of bytes made before."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

ENTRIES_MAX: Final = 4096
VALUE_BYTES_MAX: Final = (
    256  # what is longer is made each time: such names are rare, and may be an attacker's
)


class Memo(dict[K, bytes], Generic[K]):
    """`memo[key]` is `make(key)`, mostly from memory; a hit costs what it costs in a dict.

    A full memory is emptied: that is rare and needs no bookkeeping on the way of a hit.
    """

    def __init__(self, make: Callable[[K], bytes]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> bytes:
        value = self._make(key)
        if len(value) <= VALUE_BYTES_MAX:
            if len(self) >= ENTRIES_MAX:
                self.clear()
            self[key] = value
        return value
