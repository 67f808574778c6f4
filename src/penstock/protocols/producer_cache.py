"""Where produce requests publish: one long-lived producer per topic and name, shared by all requests."""

from collections import OrderedDict, defaultdict
from typing import Final

import msgspec

from penstock.broker.acting import acting_key
from penstock.broker.broker import Broker
from penstock.broker.producer import Producer
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName, check_local
from penstock.model.policy import ProducerOptions
from penstock.protocols.payloads import TopicSchemas

PRODUCERS_MAX: Final = 4096  # a cached producer is a few KiB; one that was evicted is made again

# Topic, producer name, and the caller's key if the cluster is reached for callers.
Key = tuple[TopicName, str, str]


class CachedProducer(msgspec.Struct, frozen=True):
    """A producer of a topic, and the schemas that are published there."""

    producer: Producer
    topic_schemas: TopicSchemas


class ProducerCache:
    """The producers in use, the least recently used evicted first; those of a topic that changes go at once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._acts = broker.cluster is not None
        self._cached: OrderedDict[Key, CachedProducer] = OrderedDict()
        self._keys: defaultdict[TopicName, set[Key]] = defaultdict(
            set
        )  # by the topic, for one of its partitions too
        broker.topics.listeners.add(self._changed)

    def _changed(self, topic: TopicName) -> None:
        """The topic was made, deleted, or has more partitions."""
        for key in self._keys.pop(topic, ()):
            del self._cached[key]

    def ready(self, topic: TopicName, producer_name: str = "") -> CachedProducer | None:
        """A cached producer that still fits. Raises EXCLUSIVE_PRODUCER."""
        key = topic, producer_name, acting_key() if self._acts else ""
        cached = self._cached.get(key)
        if cached is None:
            return None
        producer = cached.producer
        if producer.closed or producer.topics[0].deleted:
            self._remove(key)
            return None
        for one in producer.topics:
            one.check_shared()
        self._cached.move_to_end(key)
        return cached

    def string_version(self, topic: TopicName, cached: CachedProducer) -> int | None:
        """The schema version of texts without a schema; None if it is not known yet."""
        known, schemas = cached.topic_schemas, self._broker.schemas
        if known.string is None:
            return None
        if known.changes != schemas.changes:
            if schemas.latest(topic) is not known.newest:
                return None
            known.changes = schemas.changes
        return known.string.version

    def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has, or will have when it is made."""
        topics = self._broker.topics
        try:
            return topics.partitions(topic) or 1
        except PenstockError:
            return topics.auto(topic).partitions or 1

    def may_make(self, topic: TopicName) -> bool:
        """Whether a topic is there, or is made when something is published to it."""
        return self._broker.topics.exists(topic) or self._broker.topics.auto(topic.base).allowed

    async def get(self, topic: TopicName, producer_name: str, topic_schemas: TopicSchemas) -> CachedProducer:
        """A cached producer, a new one with `topic_schemas`; creates the topic as configured. Raises what
        `Broker.producer` does."""
        cached = self.ready(topic, producer_name)
        if cached is None:
            if producer_name:
                check_local("producer", producer_name)
            options = ProducerOptions(name=producer_name, shared_name=bool(producer_name), stateless=True)
            producer = await self._broker.producer(topic, options)
            cached = CachedProducer(producer, topic_schemas)
            key = topic, producer_name, acting_key() if self._acts else ""
            self._cached[key] = cached
            self._keys[topic.base].add(key)
            if len(self._cached) > PRODUCERS_MAX:
                oldest, evicted = next(iter(self._cached.items()))
                self._remove(oldest)
                evicted.producer.close()
        return cached

    def _remove(self, key: Key) -> None:
        del self._cached[key]
        keys = self._keys[key[0].base]
        keys.discard(key)
        if not keys:
            del self._keys[key[0].base]
