"""What a non-persistent topic keeps: the newest entries within a bound, for who is a little late."""

from collections import deque


class Kept:
    """The entries of one topic in memory, oldest first, as `(entry id, offset, bytes)`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: deque[tuple[int, int, int]] = deque()

    def add(self, entry_id: int, offset: int, size: int) -> None:
        self._entries.append((entry_id, offset, size))
        self._bytes += size

    def first_after_letting_go(self) -> tuple[int, int] | None:
        """Let go of the oldest beyond the bound; returns the first entry that stays, None when all do.

        The newest entry always stays.
        """
        gone = False
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            self._bytes -= self._entries.popleft()[2]
            gone = True
        return self._entries[0][:2] if gone else None

    @property
    def bytes(self) -> int:
        return self._bytes
