"""How many messages a consumer asks its topics for: what it has room for, in messages and in bytes.

Permits count messages, and memory is bytes. So the size of the messages that came is followed: it rises with the
largest run at once and falls slowly.
"""

from typing import Final

FIRST_BYTES: Final = 16 * 1024  # of a message, until one has come
_FALL: Final = 0.1  # of the difference, with each run that is smaller


class MessageSize:
    """Bytes of a message, as they have been lately."""

    def __init__(self) -> None:
        self.bytes = float(FIRST_BYTES)
        self._known = False

    def came(self, messages: int, size: int) -> None:
        """A run of messages came."""
        each = size / max(1, messages)
        if not self._known or each > self.bytes:
            self._known, self.bytes = True, max(1.0, each)
        else:
            self.bytes = max(1.0, self.bytes + (each - self.bytes) * _FALL)

    def fit(self, size: int) -> int:
        """How many messages fit into `size` bytes, at least one where there is any room."""
        return max(1, int(size / self.bytes)) if size > 0 else 0


def share_of(room: int, topics: int) -> int:
    """What each of some topics may send, so that none waits for another: at least one while there is room."""
    return max(1, room // topics) if room > 0 else 0


def to_grant(share: int, permitted: int) -> int:
    """How many permits more to give where `permitted` are open: none while it is less than half of the share."""
    missing = share - permitted
    return missing if missing > 0 and 2 * missing >= share else 0
