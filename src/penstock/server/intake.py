"""What came over a WebSocket and its endpoint has not taken: counted, held back, and expected to go on coming."""

import asyncio
from typing import Final

from penstock.protocols.holding import Holding
from penstock.wire.websocket.parser import FrameParser

PARTIAL_BYTES_FREE: Final = 16 * 1024  # of a message that is not complete or not taken, that is not counted
AHEAD_BYTES: Final = 32 * 1024  # of messages that wait for the endpoint; beyond them nothing is read


class Intake:
    """The messages of one connection, on their way to the one that takes them."""

    def __init__(self, parser: FrameParser, transport: asyncio.Transport, holding: Holding) -> None:
        self.parser = parser
        self.refusal: str | None = None  # why nothing more is accepted
        self._transport = transport
        self._holding = holding
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0  # with their frames
        self._taker: asyncio.Future[None] | None = None
        self._over = False  # nothing follows what waits
        self._ahead = False  # not read, as the endpoint has enough to take
        self._held_back = False  # not read, for its principal is beyond its share
        self._counted = 0
        # The message that was not complete, since when, and how much of it there was.
        self._looked = (-1, 0.0, 0)

    def feed(self, data: bytes) -> None:
        """Process read bytes; the rest is counted."""
        parser = self.parser
        before = parser.pending + len(data)
        texts = parser.feed(data)
        pending = parser.pending
        if texts and not self._over:
            self._waiting_bytes += before - pending
            if self._waiting:
                self._waiting += texts
            else:
                self._waiting = texts
            if self._taker is not None:
                self._wake()
            elif self._waiting_bytes > AHEAD_BYTES and not self._ahead:
                self._ahead = True
                self._transport.pause_reading()
        if self._counted or pending + self._waiting_bytes > PARTIAL_BYTES_FREE:
            self._count()

    async def take(self) -> list[bytes]:
        """The messages that wait, as soon as there is one; none once nothing follows."""
        while not self._waiting:
            if self._over:
                return []
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if self._counted:
            self._count()
        if self._ahead:
            self._ahead = False
            self._read_on()
        return taken

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def _count(self) -> None:
        """A message counts until the endpoint has it; beyond its principal's share it is waited with, then refused."""
        held = self.parser.pending + self._waiting_bytes
        if held <= PARTIAL_BYTES_FREE:
            held = 0
        self._holding.receive(held - self._counted)
        self._counted = held
        if held and self._holding.over and not self._over:
            if self._holding.far_over:
                self.refusal = self._holding.refuse()[1]
            elif not self._held_back:
                self._holding.slow()
                self._held_back = True
                self._transport.pause_reading()
                self._holding.call_when_room(self._when_room)

    def _when_room(self) -> None:
        if not self._held_back or self._transport.is_closing():
            return
        if self._holding.over:
            self._holding.call_when_room(self._when_room)
            return
        self._held_back = False
        self._read_on()

    def _read_on(self) -> None:
        if not self._ahead and not self._held_back and not self._transport.is_closing():
            self._transport.resume_reading()

    def late(self, now: float, body_s: float, bytes_per_s: int) -> bool:
        """Whether a message comes too slowly: within each `body_s` some of it has to come, at `bytes_per_s`. Time in
        which it is not read does not count, unless that is for its principal's share: it may be full of such
        messages."""
        if self._counted:
            self._count()
        message, since, came = self._looked
        pending = self.parser.pending
        if not pending or self._ahead or message != self.parser.completed:
            self._looked = (self.parser.completed, now, pending)
        elif now - since >= body_s:
            self._looked = (message, now, pending)
            return pending - came < bytes_per_s * (now - since)
        return False

    def end(self) -> None:
        """Nothing follows: what waits can still be taken. What comes now is read, and dropped."""
        self._over = True
        self._wake()
        if self._ahead or self._held_back:
            self._ahead = self._held_back = False
            self._read_on()

    def drop(self) -> None:
        """Forget incomplete input, and stop counting."""
        self.parser.clear()
        self._holding.receive(-self._counted)
        self._counted = 0
