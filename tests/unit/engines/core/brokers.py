"""A broker in memory whose time the test turns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.broker.delivery import Delivery
from penstock.broker.settings import BrokerSettings
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.subscription import Consumer
from penstock.model.message import Message, OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

TOPIC = TopicName.parse("t")


class Bench:
    """A broker with its clock and store."""

    def __init__(self, settings: BrokerSettings | None = None, store: MemoryStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryStore()
        self.broker = Broker(self.store, MemoryStore(), wire, self.clock, settings)

    async def publish(
        self, *payloads: bytes, topic: TopicName = TOPIC, batch: bool = True
    ) -> list[MessageId]:
        producer = await self.broker.producer(topic)
        results = await producer.publish([OutMessage(payload=p) for p in payloads], batch=batch)
        producer.close()
        assert all(isinstance(r, MessageId) for r in results), results
        return [r for r in results if isinstance(r, MessageId)]

    async def consumer(
        self,
        type: SubscriptionType = SubscriptionType.SHARED,
        *,
        topic: TopicName = TOPIC,
        subscription: str = "s",
        **options: object,
    ) -> Consumer:
        chosen = ConsumerOptions(**{"type": type, "start": EARLIEST, "nack_delay_ms": 1000, **options})
        return await self.broker.subscribe([topic], subscription, chosen)

    async def taken(self, consumer: Consumer) -> list[tuple[MessageId, Message, Delivery]]:
        """What the consumer was given, one by one."""
        await settle()
        found = []
        for delivery in consumer.take():
            for at, message in enumerate(wire.decode(delivery.entry)):
                if delivery.mask >> at & 1:
                    message_id = delivery.topic.id_of(delivery.entry, message.index)
                    found.append((message_id, message, delivery))
        return found

    async def payloads(self, consumer: Consumer) -> list[bytes]:
        return [message.payload for _, message, _ in await self.taken(consumer)]


@asynccontextmanager
async def bench(
    settings: BrokerSettings | None = None, store: MemoryStore | None = None
) -> AsyncIterator[Bench]:
    made = Bench(settings, store)
    await made.broker.start()
    try:
        yield made
    finally:
        await made.broker.close()
