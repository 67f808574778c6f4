"""Where produce requests publish: one long-lived producer per topic and name, shared by all requests."""

from collections import OrderedDict
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.producer import Producer
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName, check_local
from penstock.model.policy import ProducerOptions
from penstock.protocols.payloads import TopicSchemas

PRODUCERS_MAX: Final = 4096  # a producer kept is a few KiB; one let go of is made again


class CachedProducer:
    """A producer of a topic, and the schemas that are published there."""

    __slots__ = ("producer", "topic_schemas")

    def __init__(self, producer: Producer, topic_schemas: TopicSchemas) -> None:
        self.producer = producer
        self.topic_schemas = topic_schemas


class ProducerCache:
    """The producers in use, the least recently used let go of first."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cached: OrderedDict[tuple[TopicName, str], CachedProducer] = OrderedDict()

    def ready(self, topic: TopicName, producer_name: str = "") -> CachedProducer | None:
        """An cached that is there and still right: its topic neither deleted nor grown. Raises EXCLUSIVE_PRODUCER."""
        key = topic, producer_name
        cached = self._cached.get(key)
        if cached is None:
            return None
        topics = cached.producer.topics
        if cached.producer.closed or topics[0].deleted or len(topics) != self._count(topic):
            del self._cached[key]
            return None
        for one in topics:
            one.check_shared()
        self._cached.move_to_end(key)
        return cached

    def _count(self, topic: TopicName) -> int:
        try:
            return self._broker.topics.partitions(topic) or 1
        except PenstockError:
            return 0

    def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has, or will have when it is made."""
        return self._count(topic) or self._broker.topics.auto(topic).partitions or 1

    def may_make(self, topic: TopicName) -> bool:
        """Whether a topic is there, or is made when something is published to it."""
        return self._broker.topics.exists(topic) or self._broker.topics.auto(topic.base).allowed

    async def get(self, topic: TopicName, producer_name: str = "") -> CachedProducer:
        """An cached; creates the topic as configured. Raises what `Broker.producer` does."""
        cached = self.ready(topic, producer_name)
        if cached is None:
            if producer_name:
                check_local("producer", producer_name)
            options = ProducerOptions(name=producer_name, shared_name=True)
            producer = await self._broker.producer(topic, options)
            cached = self._cached[topic, producer_name] = CachedProducer(
                producer, TopicSchemas(self._broker.schemas, topic)
            )
            while len(self._cached) > PRODUCERS_MAX:
                _, oldest = self._cached.popitem(last=False)
                oldest.producer.close()
        return cached
