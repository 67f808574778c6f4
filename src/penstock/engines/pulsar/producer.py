"""A producer before a cluster: the partitions of one topic under one name, each with a producer on its broker."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Final, Self

from penstock.broker.producer import Item, Placement, Result
from penstock.broker.topic import ProducerFigures, Publisher, Topic, producer_key
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import IncompatibleSchema, PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.attached.errors import engine_error
from penstock.engines.shared.cluster_producer import ClusterProducer
from penstock.engines.shared.producer import internal_error
from penstock.engines.shared.publishing import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Numbers, Router
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import Requests
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import UNKNOWN_ID
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo
from penstock.runtime.clock import LoopClock
from penstock.wire.contents import parse_head

from .cluster import PulsarCluster
from .publishing import PartitionProducer
from .schemas import Schemas
from .topic import PulsarTopic
from .topics import PulsarTopics

log = logging.getLogger(__name__)

_CLOCK: Final = LoopClock()
OPENING_MAX: Final = 32  # partitions at once
UNUSED_S: Final = 60.0  # after this a stateless producer leaves: the cluster keeps topics that have producers
REPLICATOR: Final = "pulsar.repl.penstock-"  # Pulsar takes producers with this prefix for replicators
_TOKEN_BYTES: Final = 8


class Partitions:
    """The partitions of one producer: each has a producer on its broker, all under one name.

    A broker connects one producer of a name at a time. So producers that share their name (`ProducerOptions.shared_name`) connect
    under different names, and write the shared name into the metadata of their entries. While the broker deduplicates, numbered
    messages go through a connection of the kind that replicators have (`numbered`): for these a broker recognises repeats by the
    producer name in the metadata (docs/decisions/0098-producers-that-share-a-name.md).

    A `stateless` producer leaves while nothing is published: `attached` connects it again.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        topics: PulsarTopics,
        schemas: Schemas,
        name: TopicName,
        owner: Publisher,
        new_entries: Callable[..., EntryProducer] = EntryProducer,
        *,
        numbered: bool = False,
    ) -> None:
        options = owner.options
        self.name = options.name  # "" until the cluster has given one
        self._shared = options.name if options.shared_name else ""
        self._numbered = numbered
        self._own_name = ""  # of the connections, if it is not `options.name`
        if self._shared:
            self._own_name = REPLICATOR if numbered else f"{options.name}-"
            self._own_name += secrets.token_hex(_TOKEN_BYTES)
        self.topics: Sequence[PulsarTopic] = ()
        self.numbers = Numbers()
        self.router = Router(1, options.routing, options.partitioner or Partitioner.JAVA)
        self._cluster = cluster
        self._catalog = topics
        self._schemas = schemas
        self._topic = name
        self._options = options
        self._owner = owner
        self._new_entries = new_entries
        self._open: list[PartitionProducer] = []
        self._schema: SchemaInfo | None = None  # if the cluster demands one
        self._opening = asyncio.Lock()
        self._used = 0
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._ending: PenstockError | None = None  # one of them cannot go on: nothing more is published
        self._closed = False

    @property
    def entries(self) -> Sequence[EntryProducer]:
        """The producers on the brokers, as far as they are open."""
        return [one.entries for one in self._open]

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that the cluster has under this name."""
        known = [one.entries.last_sequence_id for one in self._open]
        return max([self._options.initial_sequence_id, *known])

    def deduplicate(self) -> bool:
        """Whether sequence ids of clients count."""
        return self.topics[0].policies.deduplication

    async def attached(self) -> Sequence[PartitionProducer]:
        """The partitions; connects to them unless it is connected."""
        self._used += 1
        if self._ending is not None:
            raise self._ending
        while not self._open:
            if self._closed:
                raise PenstockError(ErrorKind.UNAVAILABLE, f"the producer of {self._topic} is closed")
            async with self._opening:
                if not self._open and not self._closed:
                    await self._attach(await self._catalog.all_of(self._topic))
        return self._open

    async def open(self) -> None:
        """Connect to every partition. Raises as `Broker.producer`."""
        async with self._opening:
            await self._attach(await self._catalog.all_of(self._topic))

    async def _attach(self, topics: Sequence[PulsarTopic]) -> None:
        while True:
            try:
                await self._open_all(topics)
                break
            except IncompatibleSchema as error:
                newest = self._schemas.latest(self._topic)
                if self._schema is not None or newest is None:
                    raise engine_error(error, str(self._topic)) from None
                # The namespace takes only producers with a schema: this one publishes messages of any version.
                self._schemas.require_version(self._topic)
                self._schema = newest.schema
            except PulsarException as error:
                raise engine_error(error, str(self._topic)) from None
        self.numbers.follow(self.last_sequence_id)
        self.router.count = len(self._open)
        self.topics = topics
        if not self._numbered:
            for topic in topics:
                topic.producers[producer_key(self._owner)] = self._owner
        self._catalog.listeners.add(self._changed, (self._topic.base,))
        self._rest()

    async def _open_all(self, topics: Sequence[PulsarTopic]) -> None:
        """Open the partitions that are not open yet. The first partition's broker chooses the name if none is given."""
        opened: list[PartitionProducer] = []
        try:
            if not self._open:
                opened.append(await self._open_one(topics[0]))
            left = topics[len(self._open) + len(opened) :]
            for start in range(0, len(left), OPENING_MAX):
                some = [self._open_one(topic) for topic in left[start : start + OPENING_MAX]]
                made = await asyncio.gather(*some, return_exceptions=True)
                opened += [one for one in made if isinstance(one, PartitionProducer)]
                for one in made:
                    if isinstance(one, BaseException):
                        raise one
        except BaseException:
            self._leave(opened)
            raise
        if self._closed:
            self._leave(opened)
            raise PenstockError(ErrorKind.UNAVAILABLE, f"the producer of {self._topic} is closed")
        self._open += opened

    async def _open_one(self, topic: PulsarTopic) -> PartitionProducer:
        options, cluster = self._options, self._cluster
        how = Publication(
            topic=str(topic.name),
            name=None if self._shared else options.name or None,
            schema=self._schema,
            access_mode=ProducerAccessMode(int(options.access_mode)),
            properties=options.properties,
            encrypted=options.encrypted,
        )
        entries = self._new_entries(cluster.context, how, given=self._own_name, on_ended=self._lost)
        try:
            await entries.start()
        except BaseException:
            cluster.context.tasks.spawn(entries.close(), f"leave {topic.name}")
            raise
        self._own_name = entries.name
        self.name = self.name or entries.name
        return PartitionProducer(
            topic, entries, self.numbers, self.deduplicate, shared_name=self._shared, numbered=self._numbered
        )

    def _changed(self, topic: TopicName) -> None:
        if self._closed:
            return
        if any(one.deleted for one in self.topics):
            self._owner.close(PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self._topic} was deleted"))
        elif self._topic.partition < 0:
            self._cluster.context.tasks.spawn(self._grow(), f"look at the partitions of {topic}")

    async def _grow(self) -> None:
        """Publish to new partitions, too."""
        async with self._opening:
            try:
                topics = await self._catalog.all_of(self._topic, create=False)
                if self._closed or len(topics) <= len(self.topics):
                    return
                if self._open:
                    await self._attach(topics)
                self.topics = topics
            except PenstockError as error:
                log.warning("the producer of %s cannot publish to new partitions: %s", self._topic, error)

    def _lost(self, error: PulsarException) -> None:
        reason = engine_error(error, str(self._topic))
        if self._ending is not None:
            return
        self._ending = reason
        if all(one.entries.idle for one in self._open):
            self._owner.close(reason)
        else:
            self._cluster.context.tasks.spawn(self._settle(reason), f"end the producer of {self._topic}")

    async def _settle(self, reason: PenstockError) -> None:
        """Messages in flight to other partitions get their results before the producer ends."""
        await asyncio.gather(*(one.entries.settled() for one in self._open))
        self._owner.close(reason)

    def close(self) -> None:
        """Leave the topic; harmless when repeated."""
        self._closed = True
        self._catalog.listeners.discard(self._changed, (self._topic.base,))
        if self._idle is not None:
            self._idle.cancel()
        self._leave_all()

    def _leave_all(self) -> None:
        key = producer_key(self._owner)
        for topic in self.topics:
            if not self._numbered and topic.producers.get(key) is self._owner:
                del topic.producers[key]
        partitions, self._open = self._open, []
        self._leave(partitions)

    def _leave(self, partitions: Sequence[PartitionProducer]) -> None:
        for one in partitions:
            left = self._cluster.context.tasks.spawn(one.entries.close(), f"leave {self._topic}")
            self._leaving.add(left)
            left.add_done_callback(self._leaving.discard)

    async def left(self) -> None:
        """Wait until the brokers have closed the producers: another one of the name may then connect."""
        if self._leaving:
            await asyncio.wait(self._leaving)

    # -- of stateless producers

    def _rest(self) -> None:
        """Leave the topic once nothing was published for a while."""
        if self._options.stateless and self._idle is None and not self._closed:
            self._idle = asyncio.get_running_loop().call_later(UNUSED_S, self._release, self._used)

    def _release(self, used: int) -> None:
        self._idle = None
        if used != self._used or not all(one.entries.idle for one in self._open):
            self._rest()
            return
        self._leave_all()


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

    def deduplicate(self) -> bool:
        return self._partitions.deduplicate()

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
        """Not separate entries: others may publish between them, so that their ids do not follow one another."""
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
        """Send entries of other producers to the one log; a result each, UNKNOWN_ID for a repeat. Under a name of
        its own, a producer keeps their numbers, and sends none that is stored; else they get its own."""
        (partition,) = await self._attached()
        outgoing = [_outgoing(Item(entry)) for entry in entries]
        if not self.options.name:
            return await partition.post_entries(outgoing, renumber=True)
        last = self._partitions.last_sequence_id
        new = [entry for entry in outgoing if entry.highest > last]
        repeats = [UNKNOWN_ID] * (len(outgoing) - len(new))
        return repeats + (await partition.post_entries(new) if new else [])


def _outgoing(item: Item[NewEntry]) -> Outgoing:
    entry = item.content
    first = entry.sequence_id if entry.count == 1 else parse_head(entry.data)[0].sequence_id
    return Outgoing(entry.data, first, max(first, entry.sequence_id), entry.count, item.chunk_of >= 0)
