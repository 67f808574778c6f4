"""One fetch of a consumer instance: permits are given for it alone, and what nobody got goes back."""

import asyncio
from typing import Final

import msgspec

from penstock.broker.consumer import Consumer, Delivery
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.values import Values

from .decoding import Decoding
from .messages import Found, messages_of

_QUICK_TURNS: Final = 4  # what is in memory comes within so many turns of the loop
_STORE_S: Final = 0.0005  # then the store is asked: about the time of one read


class Fetch:
    """One fetch: permits are given for it alone, so that nothing waits with a consumer that does not come back."""

    def __init__(
        self, decoding: Decoding, consumer: Consumer, values: Values, messages_max: int, bytes_max: int
    ) -> None:
        self.consumer = consumer
        self.found: list[Found] = []
        self._decoding = decoding
        self._values = values
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._size = 0
        self._handed: list[Delivery] = []

    async def run(self, poll: LongPoll, wait_ms: int) -> None:
        """Collect what there is, waiting for the first message alone."""
        consumer = self.consumer
        consumer.flow(self._messages_max)
        try:
            await self._arrived()
            if consumer.outbox or await poll.until(consumer.ready(), wait_ms):
                await self._gather()
        except BaseException:
            self.give_back()
            raise
        finally:
            consumer.stop_flow()
            consumer.give_back(consumer.take())

    async def _arrived(self) -> None:
        """Let what is there already come: a subscription needs turns of the loop, and perhaps its store."""
        turns = 0
        while not self.consumer.outbox and not all(source.idle for source in self.consumer.attached):
            await asyncio.sleep(0 if turns < _QUICK_TURNS else _STORE_S)
            turns += 1

    async def _gather(self) -> None:
        """Take what came, as long as more of it is there."""
        while self.consumer.outbox:
            for delivery in self.consumer.take():
                self._add(delivery)
            if len(self.found) >= self._messages_max or self._size >= self._bytes_max:
                return
            await self._arrived()

    def _add(self, delivery: Delivery) -> None:
        """Take the messages that are within the bounds; the rest of the delivery goes back."""
        kept = 0
        topic = delivery.topic
        first = delivery.entry.offset
        for one in messages_of(
            self._decoding, self._values, topic, delivery.entry, delivery.mask, delivery.redeliveries
        ):
            if self._size >= self._bytes_max or (self.found and self._size + one.size > self._bytes_max):
                self._size = max(self._size, self._bytes_max)
                break
            self.found.append(one)
            self._size += one.size
            kept |= 1 << (one.shown.offset - first)
        if kept:
            self._handed.append(msgspec.structs.replace(delivery, mask=kept))
        if delivery.mask & ~kept:
            self.consumer.give_back([msgspec.structs.replace(delivery, mask=delivery.mask & ~kept)])

    def give_back(self) -> None:
        """Nobody got it: let it be delivered again."""
        self.consumer.give_back(self._handed)
        self._handed.clear()
        self.found.clear()
