"""A producer before a cluster: the partitions of one topic under one name, each with a producer on its broker."""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.producer import Item, Placement, Reply, Request, Result
from penstock.broker.topic import Topic
from penstock.client.entries.pending import Outgoing
from penstock.engines.batching import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo
from penstock.runtime.clock import LoopClock
from penstock.wire.contents import parse_head

from .acting import ActingCluster
from .cluster import PulsarCluster
from .partitions import Partitions
from .publishing import PartitionProducer
from .schemas import Schemas
from .topics import PulsarTopics

SCHEMAS_MAX: Final = 1000  # schemas a producer remembers the versions of


class Producer:
    """`broker.Producer`. `open` it before anything else."""

    def __init__(
        self,
        cluster: PulsarCluster | ActingCluster,
        topics: PulsarTopics,
        schemas: Schemas,
        name: TopicName,
        options: ProducerOptions,
    ) -> None:
        self.options = options
        self.connected_ms = LoopClock().now_ms()
        self.published = 0
        self.owner: str | None = None
        self.proxy: str | None = None
        self.closed = False
        self.close_reason: PenstockError | None = None
        self.ousted: Callable[[PenstockError], None] | None = None
        self._schemas = schemas
        self._topic = name
        self._versions: dict[object, int | None] = {}
        self._partitions = Partitions(cluster, topics, schemas, name, self)

    # -- coming and going

    async def open(self) -> None:
        """Connect to every partition. Raises as `Broker.producer`."""
        await self._partitions.open()

    @property
    def name(self) -> str:
        return self._partitions.name

    @property
    def topics(self) -> Sequence[Topic]:
        return self._partitions.topics

    @property
    def last_sequence_id(self) -> int:
        return self._partitions.last_sequence_id

    @property
    def deduplicate(self) -> Callable[[], bool]:
        return self._partitions.deduplicate

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave the topic; harmless when repeated. `reason`: it was not the producer's own wish."""
        if not self.closed:
            self.closed = True
            self.close_reason = reason
            self._partitions.close()
            if reason is not None and self.ousted is not None:
                self.ousted(reason)

    async def _attached(self) -> Sequence[PartitionProducer]:
        if self.close_reason is not None:
            raise self.close_reason
        return await self._partitions.attached()

    # -- publishing

    async def publish(self, messages: Sequence[OutMessage], *, batch: bool = True) -> list[Result]:
        """As `broker.Publishing.publish`; several calls are on their way at once, in their order."""
        partitions = await self._attached()
        results: list[Result | None] = [None] * len(messages)
        work = []
        for number, places in self._route(messages, len(partitions), results).items():
            chosen = messages if len(places) == len(messages) else [messages[place] for place in places]
            partition = partitions[number]
            try:
                posted = await partition.post(chosen, places, results, batch=batch)
            except PenstockError as error:
                for place in places:
                    results[place] = error
            else:
                work += [(partition, one) for one in posted]
        for partition, one in work:
            self.published += await partition.collect(one, results)
        return [_internal_error() if result is None else result for result in results]

    def _route(
        self, messages: Sequence[OutMessage], count: int, results: list[Result | None]
    ) -> dict[int, Sequence[int]]:
        """The places of the messages for each partition; those that cannot be published have their result."""
        if count == 1:
            for message in messages:
                if message.partition is not None:
                    break
            else:
                return {0: range(len(messages))} if messages else {}
        work: dict[int, list[int]] = {}
        for place, message in enumerate(messages):
            try:
                work.setdefault(self._partitions.router.choose(message.key, message.partition), []).append(
                    place
                )
            except PenstockError as error:
                results[place] = error
        return dict(work)

    async def publish_plain(
        self, payloads: Sequence[bytes], schema_version: int | None, partition: int | None = None
    ) -> Placement:
        partitions = await self._attached()
        number = 0 if partition is None else self._partitions.router.choose(None, partition)
        ledger, entry = await partitions[number].post_plain(payloads, schema_version)
        self.published += len(payloads)
        return Placement(self.topics[number], ledger, entry, -1, len(payloads))

    def takes_plain(self, payloads: Sequence[bytes], partition: int | None) -> bool:
        return (
            (len(self.topics) == 1 or partition is not None)
            and 0 < len(payloads) <= BATCH_MESSAGES_MAX
            and sum(map(len, payloads)) <= BATCH_BYTES_MAX
        )

    async def publish_entries(self, items: Sequence[Item[NewEntry]]) -> list[Result]:
        (partition,) = await self._attached()
        results = await partition.post_entries([_outgoing(item) for item in items])
        for item, result in zip(items, results, strict=True):
            item.settle(result)
        return results

    async def schema_version(self, schema: SchemaInfo) -> int | None:
        key = (schema.type, schema.data, tuple(sorted(schema.properties.items())))
        if key not in self._versions:
            version = await self._schemas.get_or_create(self._topic, schema)
            if len(self._versions) >= SCHEMAS_MAX:
                self._versions.clear()
            self._versions[key] = version
        return self._versions[key]

    def number(self, message: OutMessage) -> int:
        return self._partitions.numbers.give(message)

    def ask(self, message: OutMessage, timeout_ms: int) -> Request:
        raise _no_requests()

    async def request(self, message: OutMessage, timeout_ms: int) -> Reply:
        raise _no_requests()


def _outgoing(item: Item[NewEntry]) -> Outgoing:
    entry = item.content
    first = entry.sequence_id if entry.count == 1 else parse_head(entry.data)[0].sequence_id
    return Outgoing(entry.data, first, max(first, entry.sequence_id), entry.count, item.chunk_of >= 0)


def _no_requests() -> PenstockError:
    return PenstockError(ErrorKind.NOT_SUPPORTED, "the engine behind this server has no requests")


def _internal_error() -> PenstockError:
    return PenstockError(ErrorKind.INTERNAL, "the message could not be published")
