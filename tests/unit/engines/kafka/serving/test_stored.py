"""Subscriptions over the journal of cursors: the next owner goes on where the answered acknowledgements of the last one end."""

from typing import Any

import pytest
from tests.support.cursor_journal import Log, Process
from tests.support.skipping_log import LEDGER, Host, SkippingLog

from penstock.engines.kafka.serving.cursors import Replaced
from penstock.engines.kafka.serving.state import CursorKey, slot_of
from penstock.engines.kafka.serving.stored import JournalWriter
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.message_id import MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

KEY = CursorKey("t", 0, "s")
SLOT = slot_of("t", 0, 2)


class Owner:
    """A process that serves one subscription of a log once it owns the slot."""

    def __init__(self, journal: Log, name: str, log: SkippingLog) -> None:
        self.process = Process(journal, name)
        self.log = log
        self.writer = JournalWriter()
        self.writer.cursors = self.process.cursors
        self.writer.bind(LEDGER, "t", 0, "id")

    async def serve(self) -> set[int]:
        """Own the slot, and return the offsets that a consumer gets."""
        self.process.journal.read_on(999)
        await self.process.cursors.claim([SLOT])
        found = await self.writer.load(KEY, "id", self.log.first_offset, self.log.next_offset)
        cursor = OffsetSet() if found is None else found[0]
        log: Any = self.log
        host: Any = Host()
        self.subscription = Subscription(
            log,
            "s",
            cursor=cursor,
            durable=True,
            keys=wire.keys,
            tasks=self.process.tasks,
            cursors=self.writer,
            compaction=Compaction(),
            host=host,
        )
        self.consumer = Consumer("c", "s", ConsumerOptions(type=SubscriptionType.SHARED, window=100))
        self.subscription.add(self.consumer)
        await settle()
        return {one.entry.offset for one in self.consumer.take()}

    async def acknowledge(self, *offsets: int) -> None:
        for offset in offsets:
            await self.consumer.acknowledge(MessageId(LEDGER, offset, -1))
        await self.subscription.flush()

    async def close(self) -> None:
        self.subscription.close()
        await self.process.close()


async def test_a_subscription_moves_between_processes() -> None:
    journal, log = Log(), SkippingLog(ManualClock())
    log.grow(0, 10)
    a, b = Owner(journal, "a", log), Owner(journal, "b", log)
    assert await a.serve() == set(range(10))
    await a.acknowledge(0, 1, 5)
    await a.subscription.set_properties({"team": "x"})
    assert await b.serve() == {2, 3, 4, 6, 7, 8, 9}
    with pytest.raises(Replaced):
        await a.acknowledge(2)
    await b.acknowledge(2, 3, 9)
    a.subscription.close()
    assert await a.serve() == {4, 6, 7, 8}
    found = await a.writer.load(KEY, "id", 0, 10)
    assert found is not None
    assert found[1] == b'{"team":"x"}'
    await a.subscription.move(1)
    with pytest.raises(Replaced):
        await b.acknowledge(4)
    b.subscription.close()
    assert await b.serve() == set(range(1, 10)), "the position was moved back"
    await b.subscription.delete()
    assert await b.writer.load(KEY, "id", 0, 10) is None
    await a.close()
    await b.close()
