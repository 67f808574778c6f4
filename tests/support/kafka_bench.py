"""A topic of a test in a real Kafka, and brokers in the test's process, each of which is a process of the service."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from confluent_kafka import Producer

from penstock.broker.consumer import Consumer
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.clock import LoopClock
from penstock.wire import entry as wire

from .kafka_broker import KafkaCluster
from .kafka_reader import KafkaReader
from .waiting import until_async as until


class Client:
    """A consumer whose deliveries are taken as they come."""

    def __init__(self, broker: KafkaBroker, consumer: Consumer) -> None:
        self.broker = broker
        self.consumer = consumer
        self.ids: list[MessageId] = []
        self.texts: list[str] = []
        self.redeliveries: list[int] = []
        self._task = asyncio.get_running_loop().create_task(self._take())

    async def _take(self) -> None:
        while await self.consumer.ready():
            for delivery in self.consumer.take():
                (message,) = wire.decode(delivery.entry)
                self.texts.append(message.payload.decode())
                self.redeliveries.append(delivery.redeliveries)
                self.ids.append(delivery.topic.id_of(delivery.entry, -1))

    async def come(self, count: int) -> list[str]:
        await until(lambda: len(self.texts) >= count)
        return self.texts

    async def acknowledge(self, *texts: str) -> None:
        for text in texts or tuple(self.texts):
            await self.consumer.acknowledge(self.ids[self.texts.index(text)])
        await self.consumer.flush()

    async def leave(self) -> None:
        await self.consumer.leave()
        await self._task


class Bench:
    """A topic of the test's own, and as many brokers as are asked for."""

    def __init__(self, cluster: KafkaCluster, partitions: int = 1) -> None:
        self.cluster = cluster
        self.name = f"kc-{uuid4().hex[:10]}"
        self.subscription = f"kc-s-{self.name}"
        self.topic = TopicName.parse(self.name)
        self.partitions = partitions
        self.brokers: list[KafkaBroker] = []
        self._made = False
        self.clients: list[Client] = []
        self._reader = KafkaReader(cluster.bootstrap, f"__penstock-{self.name}")
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})

    async def broker(self) -> KafkaBroker:
        settings = ClusterSettings(url=self.cluster.service_url, documents_topic=f"__penstock-{self.name}")
        broker = KafkaBroker(settings, BrokerSettings(cursor_flush_ms=20), LoopClock())
        await broker.start()
        self.brokers.append(broker)
        if not self._made:
            self._made = True
            await broker.topics.create(self.topic, self.partitions if self.partitions > 1 else 0)
        return broker

    async def stop(self, broker: KafkaBroker) -> None:
        self.brokers.remove(broker)
        await broker.close()

    async def publish(self, texts: Sequence[str], partition: int = -1, keys: bool = False) -> None:
        for text in texts:
            key = text.partition(":")[0] if keys else None
            if partition >= 0:
                self._producer.produce(self.name, text, key=key, partition=partition)
            else:
                self._producer.produce(self.name, text, key=key)
        assert await asyncio.to_thread(self._producer.flush, 30) == 0

    async def consume(
        self,
        broker: KafkaBroker,
        type: SubscriptionType = SubscriptionType.SHARED,
        *,
        topic: TopicName | None = None,
        subscription: str | None = None,
        **options: object,
    ) -> Client:
        chosen = ConsumerOptions(**{"type": type, "start": EARLIEST, "nack_delay_ms": 0, **options})  # type: ignore[arg-type]
        made = await broker.subscribe([topic or self.topic], subscription or self.subscription, chosen)
        self.clients.append(Client(broker, made))
        return self.clients[-1]

    async def marks(self, subscription: str | None = None) -> dict[int, int]:
        """Below which offset everything is acknowledged, durably, by partition."""
        cursors = await asyncio.to_thread(self._reader.cursors, self.name, subscription or self.subscription)
        return {partition: cursor.mark for partition, cursor in cursors.items()}

    async def close(self) -> None:
        for broker in list(self.brokers):
            await self.stop(broker)


@asynccontextmanager
async def bench(cluster: KafkaCluster, partitions: int = 1) -> AsyncIterator[Bench]:
    made = Bench(cluster, partitions)
    try:
        yield made
    finally:
        await made.close()
