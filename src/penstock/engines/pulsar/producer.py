"""A producer before a cluster: the partitions of one topic under one name, each with a producer on its broker."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Final, Self

from penstock.broker.producer import Item, Placement, Result
from penstock.broker.topic import ProducerFigures, Topic
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.engines.shared.batching import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from penstock.engines.shared.cluster_producer import ClusterProducer
from penstock.engines.shared.producer import internal_error
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import Requests
from penstock.engines.shared.routing import Router
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import UNKNOWN_ID
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.runtime.clock import LoopClock
from penstock.wire.contents import parse_head

from .cluster import PulsarCluster
from .partitions import Partitions
from .publishing import PartitionProducer
from .schemas import Schemas
from .topics import PulsarTopics

_CLOCK: Final = LoopClock()


class Producer(ClusterProducer):
    """`broker.Producer`. `open` it before anything else."""

    def __init__(
        self,
        cluster: PulsarCluster,
        topics: PulsarTopics,
        schemas: Schemas,
        name: TopicName,
        options: ProducerOptions,
        requests: Requests,
        replies: Replies | None,
        new_entries: Callable[..., EntryProducer] = EntryProducer,
    ) -> None:
        version_of = partial(schemas.get_or_create, name)
        super().__init__(options, _CLOCK.now_ms(), version_of, name.namespace_name, requests, replies)
        self._partitions = Partitions(cluster, topics, schemas, name, self, new_entries)
        self._numbered: Partitions | None = None
        if options.shared_name:
            self._numbered = Partitions(cluster, topics, schemas, name, self, new_entries, numbered=True)

    # -- coming and going

    async def open(self) -> Self:
        """Connect to every partition. Raises as `Broker.producer`."""
        await self._partitions.open()
        return self

    @property
    def name(self) -> str:
        return self._partitions.name

    @property
    def topics(self) -> Sequence[Topic]:
        return self._partitions.topics

    def figures(self) -> ProducerFigures:
        return ProducerFigures(
            connected_ms=self.connected_ms,
            published=self.published,
            last_sequence_id=(last := self._partitions.last_sequence_id),
            stored_sequence_id=last if self.deduplicate() else -1,
        )

    @property
    def deduplicate(self) -> Callable[[], bool]:
        return self._partitions.deduplicate

    def _leave(self) -> None:
        self._partitions.close()
        if self._numbered is not None:
            self._numbered.close()

    async def left(self) -> None:
        """Wait until the brokers have closed it, after `close`."""
        await self._partitions.left()

    async def _attached(self, partitions: Partitions | None = None) -> Sequence[PartitionProducer]:
        self.check()
        return await (partitions or self._partitions).attached()

    # -- publishing

    async def _publish(self, messages: Sequence[OutMessage], *, batch: bool) -> list[Result]:
        if self._numbered is not None and self.deduplicate():
            given = [message.sequence_id is not None for message in messages]
            if any(given):
                # The broker looks at the first number of a batch only, and the last one that it has is not known here.
                numbered = await self._outcome(self._numbered, list(compress(messages, given)), batch=False)
                others = [message for message in messages if message.sequence_id is None]
                rest = await self._outcome(self._partitions, others, batch=batch)
                stored, unnumbered = iter(numbered), iter(rest)
                return [next(stored if one else unnumbered) for one in given]
        return await self._publish_to(self._partitions, messages, batch=batch)

    async def _outcome(
        self, partitions: Partitions, messages: Sequence[OutMessage], *, batch: bool
    ) -> list[Result]:
        if not messages:
            return []
        try:
            return await self._publish_to(partitions, messages, batch=batch)
        except PenstockError as error:
            return [error] * len(messages)

    async def _publish_to(
        self, to: Partitions, messages: Sequence[OutMessage], *, batch: bool
    ) -> list[Result]:
        partitions = await self._attached(to)
        results: list[Result | None] = [None] * len(messages)
        work = []
        for number, places in self._route(to.router, messages, len(partitions), results).items():
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
        return [internal_error() if result is None else result for result in results]

    def _route(
        self, router: Router, messages: Sequence[OutMessage], count: int, results: list[Result | None]
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
                work.setdefault(router.choose(message.key, message.partition), []).append(place)
            except PenstockError as error:
                results[place] = error
        return dict(work)

    async def publish_plain(
        self,
        payloads: Payloads,
        schema_version: int | None,
        partition: int | None = None,
        *,
        batch: bool = True,
    ) -> Placement:
        partitions = await self._attached()
        number = 0 if partition is None else self._partitions.router.choose(None, partition)
        ledger, entry = await partitions[number].post_plain(payloads, schema_version)
        self.published += len(payloads)
        return Placement(self.topics[number], ledger, entry, -1, len(payloads), batched=True)

    def takes_plain(self, count: int, size_bytes: int, partition: int | None, *, batch: bool = True) -> bool:
        """Not entries of their own: others may publish between them, so that their ids do not follow one another."""
        return (
            (batch or count == 1)
            and (len(self.topics) == 1 or partition is not None)
            and 0 < count <= BATCH_MESSAGES_MAX
            and size_bytes <= BATCH_BYTES_MAX
        )

    async def publish_entries(self, items: Sequence[Item[NewEntry]]) -> list[Result]:
        (partition,) = await self._attached()
        results = await partition.post_entries([_outgoing(item) for item in items])
        for item, result in zip(items, results, strict=True):
            item.settle(result)
        return results

    async def append(self, entries: Sequence[NewEntry]) -> list[Result]:
        """Send entries of other producers to the one log; a result each, UNKNOWN_ID for what is a repeat. Under a name of
        its own, a producer keeps their numbers, and sends none that is stored; else they get its own."""
        (partition,) = await self._attached()
        outgoing = [_outgoing(Item(entry)) for entry in entries]
        if not self.options.name:
            return await partition.post_entries(outgoing, renumber=True)
        last = self._partitions.last_sequence_id
        new = [entry for entry in outgoing if entry.highest > last]
        posted = await partition.post_entries(new) if new else []
        return [UNKNOWN_ID] * (len(outgoing) - len(new)) + posted


def _outgoing(item: Item[NewEntry]) -> Outgoing:
    entry = item.content
    first = entry.sequence_id if entry.count == 1 else parse_head(entry.data)[0].sequence_id
    return Outgoing(entry.data, first, max(first, entry.sequence_id), entry.count, item.chunk_of >= 0)
