"""The producers of a broker: admitted by their topics, and given new partitions."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, cast
from weakref import WeakValueDictionary

from penstock.broker.staging import Published
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topic import Topic as AnyTopic
from penstock.broker.topic import producer_key
from penstock.engines.core.ports import Batches
from penstock.engines.core.topic.producer import Producer
from penstock.engines.core.topic.publish import publish_bulk
from penstock.engines.core.topic.topic import Topic
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.publishing import Numbers
from penstock.engines.shared.requests import Requests
from penstock.model.entry import NewEntry
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .topics import Topics

_DEAD_LETTERS: Final = ProducerOptions(name="penstock-dead-letters", stateless=True)


class Producers:
    """Opens producers. `new_name` makes a name for those that bring none."""

    def __init__(
        self,
        topics: Topics,
        schemas: Schemas,
        requests: Requests,
        storage: StorageHealth,
        batches: Batches,
        clock: Clock,
        tasks: Tasks,
        *,
        message_bytes_max: int,
        new_name: Callable[[str], str],
    ) -> None:
        self._topics = topics
        self._schemas = schemas
        self._requests = requests
        self._storage = storage
        self._batches = batches
        self._clock = clock
        self._message_bytes_max = message_bytes_max
        self._new_name = new_name
        # Of producers that share a name. Sequence ids of requests have to differ: replies are found by them.
        self._numbers: WeakValueDictionary[tuple[TopicName, str], Numbers] = WeakValueDictionary()
        self._growing: dict[TopicName, set[Producer]] = {}  # by the partitioned topic they publish to
        self._tasks = tasks
        topics.listeners.add(self._topic_changed)

    async def open(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[Producer], None] | None = None,
    ) -> Producer:
        """As `Broker.producer`."""
        options = options or ProducerOptions()
        if not options.stateless:
            self._storage.check(name)
        topics = await self._topics.all_of(name)
        for topic in topics:
            topic.check_open()
            if not options.stateless:
                await topic.backlog.check()

        own_name = options.name or self._new_name("producer")
        numbers = Numbers()
        if options.shared_name and options.initial_sequence_id < 0:
            numbers = self._numbers.setdefault((name.base, own_name), numbers)
        producer = Producer(
            own_name,
            topics,
            options,
            batches=self._batches,
            clock=self._clock,
            version_of=lambda schema: self._schemas.get_or_create(name, schema),
            deduplicate=lambda: topics[0].policies.deduplication,
            message_bytes_max=self._message_bytes_max,
            detach=self._detach,
            requests=self._requests,
            topic=str(name.base),
            numbers=numbers,
        )
        try:
            for topic in topics:
                await topic.admit(producer, None if queued is None else partial(queued, producer))
        except BaseException:
            producer.close()
            raise
        numbers.follow(producer.last_sequence_id)
        if not options.stateless and (len(topics) > 1 or topics[0].name != name):
            self._growing.setdefault(name, set()).add(producer)
        return producer

    @asynccontextmanager
    async def lend(self, name: TopicName, encrypted: bool) -> AsyncIterator[Producer]:
        """A producer for one dead letter, `encrypted` or not; raises why it cannot be opened."""
        producer = await self.open(name, _DEAD_LETTERS)
        try:
            yield producer
        finally:
            producer.close()

    def _topic_changed(self, name: TopicName) -> None:
        if self._growing.get(name) and self._topics.exists(name):
            self._tasks.spawn(self._grow(name), f"grow {name}")

    async def _grow(self, name: TopicName) -> None:
        """Let the producers of a partitioned topic know its new partitions."""
        topics = await self._topics.all_of(name, create=False)
        for producer in self._growing.get(name, set()):
            producer.grow(topics)
            for topic in topics:
                topic.producers.setdefault(producer_key(producer), producer)

    def _detach(self, producer: Producer) -> None:
        base = producer.topics[0].name.base
        growing = self._growing.get(base)
        if growing is not None:
            growing.discard(producer)
            if not growing:
                del self._growing[base]
        for topic in producer.topics:
            topic.access.leave(producer)

    async def append_entries(
        self, topic: AnyTopic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> Published:
        """As `Broker.append_entries`."""
        log = cast(Topic, topic)
        placed, repeats = await publish_bulk(log, entries, deduplicate=deduplicate)
        done = Published(repeats=repeats)
        if placed is not None:
            done.first = MessageId(topic.ledger, placed.entry_id, topic.name.partition)
            done.offset = placed.offset
        if deduplicate and entries:
            done.last_sequence_id = log.last_sequence_id(entries[-1].producer)
        return done
