"""One lock a key, kept no longer than somebody holds it or waits for it: keys may be whatever a client asks for."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class _Held:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Locks(Generic[K]):
    """Locks by key."""

    def __init__(self) -> None:
        self._held: dict[K, _Held] = {}

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Have the lock of `key` for a while; not to be asked for again meanwhile."""
        held = self._held.setdefault(key, _Held())
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]

    def __len__(self) -> int:
        return len(self._held)
