"""A producer before Kafka: the partitions of one topic, through the one client that all producers of a process share.

An answer means what Kafka's `acks=all` means. Kafka does not distinguish repeats of one producer name from another's messages: sequence
ids that were given are kept in headers, and nothing is dropped for them.
"""

from collections.abc import Awaitable, Sequence

from penstock.broker.capability import Capability, not_supported
from penstock.broker.producer import Item, Placement, Result
from penstock.broker.topic import ProducerFigures, Topic, producer_key
from penstock.engines.shared.cluster_producer import ClusterProducer
from penstock.engines.shared.producer import internal_error
from penstock.engines.shared.publishing import Numbers, Router
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, ProducerOptions
from penstock.model.schema import SchemaInfo
from penstock.runtime.clock import LoopClock

from .publishing import Posting, Publishing, Turns
from .records import record_of
from .topic import KafkaTopic


class Producer(ClusterProducer):
    """`broker.Producer`. `attach` it before anything else."""

    def __init__(
        self,
        name: TopicName,
        topics: Sequence[KafkaTopic],
        options: ProducerOptions,
        publishing: Publishing,
        own_name: str,
    ) -> None:
        def version_of(schema: SchemaInfo) -> Awaitable[int | None]:
            return publishing.schemas.get_or_create(name, schema)

        replies = publishing.replies
        super().__init__(
            options, topics[0].clock.now_ms(), version_of, name.namespace_name, replies.requests, replies
        )
        self.name = own_name
        self.topics: Sequence[Topic] = topics
        self.last_sequence_id = options.initial_sequence_id
        self._topic = name
        self._logs = topics
        self._publishing = publishing
        self._kept_name = options.name  # one that was made up is not worth a header
        self._numbers = Numbers()
        self._numbers.follow(options.initial_sequence_id)
        self._router = Router(len(topics), options.routing, options.partitioner or publishing.partitioner)
        self._repartitions_by_key = (
            options.repartitions_by_key and name.partition >= 0 and publishing.partitioner.hashes_bytes
        )
        self._turns = Turns(self._router, LoopClock())

    def figures(self) -> ProducerFigures:
        return ProducerFigures(
            connected_ms=self.connected_ms,
            published=self.published,
            last_sequence_id=self.last_sequence_id,
            stored_sequence_id=-1,  # Kafka does not recognize repeats
        )

    # -- coming and going

    def attach(self) -> None:
        """Join the topics. Raises PRODUCER_BUSY, NOT_SUPPORTED."""
        options = self.options
        if options.access_mode is not AccessMode.SHARED:
            raise not_supported(Capability.EXCLUSIVE_PRODUCERS.value)
        if options.stateless:
            return
        for topic in self._logs:
            held, most = topic.producers.get(producer_key(self)), topic.policies.max_producers
            if held is None:
                if 0 < most <= len(topic.producers):
                    raise PenstockError(ErrorKind.PRODUCER_BUSY, f"topic {topic.name} has {most} producers")
                continue
            if not options.returning:
                raise PenstockError(
                    ErrorKind.PRODUCER_BUSY,
                    f"Producer with name '{self.name}' is already connected to topic {topic.name}",
                )
            held.close(PenstockError(ErrorKind.PRODUCER_BUSY, "the producer came back on another connection"))
        for topic in self._logs:
            topic.producers[producer_key(self)] = self

    def grow(self, topics: Sequence[KafkaTopic]) -> None:
        """The topic has more partitions now: publish to them too, unless this is a producer of one partition."""
        if self._topic.partition < 0 and len(topics) > len(self._logs) and not self.closed:
            for topic in topics[len(self._logs) :]:
                topic.producers[producer_key(self)] = self
            self.topics = self._logs = topics
            self._router.count = len(topics)

    def _leave(self) -> None:
        key = producer_key(self)
        for topic in self._logs:
            if topic.producers.get(key) is self:
                del topic.producers[key]

    # -- publishing

    async def _publish(self, messages: Sequence[OutMessage], *, batch: bool) -> list[Result]:
        """Each message is a separate record, whatever `batch` says."""
        await self._room()
        results: list[Result | None] = [None] * len(messages)
        posting = Posting(results)
        alone, bytes_max, name, numbers = (
            len(self._logs) == 1,
            self._publishing.bytes_max,
            self._kept_name,
            self._numbers,
        )
        framing = await self._publishing.framing(self._topic, {one.schema_version for one in messages})
        kafka, now = self._logs[0].place.topic, self._logs[0].clock.now_ms()
        for place, message in enumerate(messages):
            given = message.sequence_id is not None
            number = numbers.give(message)
            self.last_sequence_id = max(self.last_sequence_id, number)
            try:
                if len(message.payload) > bytes_max:
                    raise _too_large(len(message.payload), bytes_max)
                if message.deliver_at:
                    await self._publishing.check_delay(kafka, message.deliver_at, now)
                record = record_of(message, name, numbered=given or bool(name), framing=framing)
                partition = (
                    0
                    if alone and message.partition is None
                    else self._router.choose(message.key, message.partition, record.key)
                )
            except PenstockError as error:
                results[place] = error
            else:
                posting.add(partition, place, record)
        self.published += await posting.post(self._logs, self._publishing.records)
        return [internal_error() if result is None else result for result in results]

    def takes_plain(self, count: int, size_bytes: int, partition: int | None, *, batch: bool = True) -> bool:
        return count > 0 and size_bytes <= self._publishing.bytes_max and not self._kept_name

    async def publish_plain(
        self,
        payloads: Payloads,
        schema_version: int | None,
        partition: int | None = None,
        *,
        batch: bool = True,
    ) -> Placement | list[Result]:
        """As `broker.Producer.publish_plain`: each message is a record, and all of them go to one partition."""
        await self._room()
        topic = self._logs[self._turns.next() if partition is None else self._router.choose(None, partition)]
        count = len(payloads)
        self.last_sequence_id = self._numbers.take(count) + count - 1
        placed = await self._publishing.plain(self._topic, topic, payloads, schema_version)
        if isinstance(placed, list):
            count = sum([isinstance(one, MessageId) for one in placed])
        self.published += count
        return placed

    async def publish_entries(self, items: Sequence[Item[NewEntry]]) -> list[Result]:
        """As `broker.Producer.publish_entries`. An entry of several messages has the id of the first one, whose partition may
        differ from this producer's (`ProducerOptions.repartitions_by_key`)."""
        await self._room()
        try:
            if any(item.request is not None for item in items):
                await self._publishing.replies.listen(self._topic.namespace_name)
            keyed = self._publishing.key_partitions(self._logs[0]) if self._repartitions_by_key else None
        except PenstockError as error:
            for item in items:
                item.settle(error)
            return [error] * len(items)
        places: list[range] = []
        results: list[Result | None] = []
        posting = Posting(results)
        for item in items:
            first = len(results)
            content = item.content
            try:
                if content.deliver_at:
                    kafka = self._logs[0].place.topic
                    await self._publishing.check_delay(kafka, content.deliver_at, content.publish_time)
                records = await self._publishing.records_of(
                    self._topic, content, numbered=bool(self._kept_name)
                )
                self._publishing.address(self._topic, records, item.request)
            except PenstockError as error:
                results.append(error)
            else:
                for record in records:
                    try:
                        place = 0 if keyed is None else await keyed.of(record.key)
                    except PenstockError as error:
                        results.append(error)
                    else:
                        posting.add(place, len(results), record)
                        results.append(None)
            self.last_sequence_id = max(self.last_sequence_id, content.sequence_id)
            places.append(range(first, len(results)))
        self.published += await posting.post(
            self._logs if keyed is None else keyed.logs, self._publishing.records
        )
        for item, own in zip(items, places, strict=True):
            failed = [one for one in results[own.start : own.stop] if isinstance(one, PenstockError)]
            item.settle(failed[0] if failed else results[own.start] or internal_error())
        return [item.result or internal_error() for item in items]

    async def _room(self) -> None:
        self.check()
        if self._publishing.records.full:
            await self._publishing.records.room()


def _too_large(size: int, size_max: int) -> PenstockError:
    return PenstockError(ErrorKind.TOO_LARGE, f"a message of {size} bytes; the most is {size_max}")
