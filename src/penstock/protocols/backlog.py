"""Frames that were read from a socket and wait to be processed, bounded in number and bytes.

One side adds and waits for room, the other takes everything there is: work is done in groups that grow with
the load, without a task or a future for each item.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """An item with its weight and the time it came (monotonic ms)."""

    size: int
    arrived_ms: int


T = TypeVar("T", bound=Sized)


class Backlog(Generic[T]):
    """A bounded queue with one producer and one consumer on the loop."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._items: deque[T] = deque()
        self.size_bytes = 0
        self._closed = False
        self._taker: asyncio.Future[None] | None = None
        self._room = asyncio.Event()

    def add(self, item: T) -> None:
        """Add an item; the caller looks at `full` before the next."""
        self._items.append(item)
        self.size_bytes += item.size
        self._wake()

    def extend(self, items: Sequence[T], size: int) -> None:
        """Add items of `size` bytes together."""
        self._items.extend(items)
        self.size_bytes += size
        self._wake()

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    @property
    def full(self) -> bool:
        return len(self._items) >= self._count_max or self.size_bytes >= self._bytes_max

    async def room(self) -> None:
        """Wait until it is no longer full."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Nothing follows; what waits can still be taken."""
        self._closed = True
        self._wake()

    async def take(self, count_max: int = 1 << 30) -> list[T]:
        """What waits, oldest first, as soon as there is something; nothing once closed and empty."""
        while not self._items:
            if self._closed:
                return []
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        if len(self._items) <= count_max:
            taken = list(self._items)
            self._items.clear()
            self.size_bytes = 0
        else:
            taken = [self._items.popleft() for _ in range(count_max)]
            self.size_bytes -= sum(item.size for item in taken)
        self._room.set()
        return taken

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest item came."""
        return self._items[0].arrived_ms if self._items else None

    def expire(self, before_ms: int) -> list[T]:
        """Take out what came at `before_ms` or earlier."""
        taken: list[T] = []
        while self._items and self._items[0].arrived_ms <= before_ms:
            item = self._items.popleft()
            self.size_bytes -= item.size
            taken.append(item)
        if taken:
            self._room.set()
        return taken
