"""What an answer takes while it is made and sent, counted for who asked for it."""

from typing import Final

from penstock.protocols.http.answers import JSON_TYPE
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.transport import COUNTED

SMALL_BYTES: Final = 64 * 1024  # an answer that nobody counts


class Answered:
    """The bytes of one answer. Whoever makes it ends with `count(0)`."""

    def __init__(self, exchange: Exchange) -> None:
        self._holding = exchange.holding
        self._counted = 0
        self._reserved = 0
        exchange.scope[COUNTED] = True

    async def room(self, size: int, *, needed: bool) -> bool:
        """Reserve `size` bytes for a read, until the next `count`; False without room.

        What is `needed` is waited for; raises TOO_MANY_REQUESTS or UNAVAILABLE where that is in vain.
        """
        holding = self._holding
        if holding is None:
            return True
        if needed:
            await holding.reserved_soon(size)
        elif not holding.reserve(size):
            return False
        self._reserved += size
        return True

    async def wait(self, size: int) -> None:
        """Reserve `size` bytes for a read, until the next `count`, as soon as there is room."""
        if self._holding is not None:
            await self._holding.reserved(size)
            self._reserved += size

    async def send(self, exchange: Exchange, parts: list[bytes]) -> None:
        """Give the whole answer, in JSON; where it is large, part by part, each let go of once it is written."""
        size = sum([len(part) for part in parts])
        if size <= SMALL_BYTES:
            self.count(0)
            await exchange.answer(b"".join(parts))
            return
        self.count(size)
        await exchange.head(200, JSON_TYPE, (b"content-length", b"%d" % size))
        parts.reverse()
        while parts:
            await exchange.part(parts.pop())
        await exchange.end()

    def count(self, size: int) -> None:
        """It takes `size` bytes now."""
        if self._holding is None:
            return
        if size <= SMALL_BYTES:
            size = 0
        change = size - self._counted - self._reserved
        if change:
            self._holding.send(change)
        self._counted, self._reserved = size, 0
