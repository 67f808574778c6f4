"""A producer: messages in, entries appended, one result a message (PIP-64, PIP-43, Pulsar's WebSocket API)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from penstock.broker.producer import Item, Placement, Reply, Request, Result
from penstock.broker.topic import ProducerFigures
from penstock.engines.core.ports import Batches
from penstock.engines.shared.producer import OpenProducer, internal_error
from penstock.engines.shared.publishing import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    RAISING_MAX,
    Numbers,
    Router,
    batch_sizes,
    cut,
)
from penstock.engines.shared.requests import Requests
from penstock.model.entry import NewEntry, NewRun
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import UNKNOWN_ID
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo
from penstock.runtime.clock import Clock

from .publish import Packed, publish, whole
from .topic import Topic


class Producer(OpenProducer):
    """`broker.Producer`: publishes to the partitions of one topic under one name.

    `version_of` finds or registers a schema for the topic; `deduplicate` says whether explicit sequence ids
    count; `message_bytes_max` bounds one message. Producers that share a name share their `numbers`, which follow
    `last_sequence_id` once the producer is admitted.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[Topic],
        options: ProducerOptions,
        *,
        batches: Batches,
        clock: Clock,
        version_of: Callable[[SchemaInfo], Awaitable[int | None]],
        deduplicate: Callable[[], bool],
        message_bytes_max: int,
        detach: Callable[["Producer"], None],
        requests: Requests,
        topic: str,
        numbers: Numbers,
    ) -> None:
        super().__init__(options, clock.now_ms(), version_of)
        self.name = name
        self.topics = list(topics)
        self.deduplicate = deduplicate
        self._batches = batches
        self._clock = clock
        self._bytes_max = message_bytes_max
        self._detach = detach
        self._requests = requests
        self._topic = topic
        self._router = Router(len(self.topics), options.routing, options.partitioner or Partitioner.JAVA)
        last = max(topic.sequences.last(name) for topic in self.topics)
        self.last_sequence_id = max(options.initial_sequence_id, last)
        self._numbers = numbers

    def figures(self) -> ProducerFigures:
        return ProducerFigures(
            connected_ms=self.connected_ms,
            published=self.published,
            last_sequence_id=self.last_sequence_id,
            stored_sequence_id=self.topics[0].last_sequence_id(self.name) if self.deduplicate() else -1,
        )

    # -- publishing

    async def publish_plain(
        self,
        payloads: Payloads,
        schema_version: int | None,
        partition: int | None = None,
        *,
        batch: bool = True,
    ) -> Placement:
        """Store messages that are nothing but payloads, all or none; faster than `publish`.

        For a topic of one partition, or with `partition` given; all within the bounds of a batch.
        """
        self.check()
        topic = self.topics[0 if partition is None else self._router.choose(None, partition)]
        numbers = self._numbers
        first = numbers.next
        numbers.next = first + len(payloads)
        encode = self._batches.encode_plain if batch else self._batches.encode_plain_each
        entry = encode(
            payloads,
            producer=self.name,
            sequence_id=first,
            publish_time=self._clock.now_ms(),
            schema_version=schema_version,
        )
        if isinstance(entry, NewRun):
            placed = await topic.append(entry)
            self.published += len(entry)
            return Placement(topic, topic.ledger, placed.entry_id, placed.offset, len(entry), batched=False)
        entry.producer = ""  # sequence ids that the client did not choose are not remembered
        placed = await topic.append((entry,))
        self.published += entry.count
        return Placement(topic, topic.ledger, placed.entry_id, placed.offset, entry.count, batched=True)

    def grow(self, topics: Sequence[Topic]) -> None:
        """The topic has more partitions now: publish to them too."""
        if len(topics) > len(self.topics):
            self.topics = list(topics)
            self._router.count = len(topics)

    def takes_plain(self, count: int, size_bytes: int, partition: int | None, *, batch: bool = True) -> bool:
        return (
            (len(self.topics) == 1 or partition is not None)
            and 0 < count <= BATCH_MESSAGES_MAX
            and size_bytes <= min(BATCH_BYTES_MAX, self._bytes_max)
        )

    def _tracked(self) -> bool:
        """Whether sequence ids that clients choose are remembered; a made-up name repeats nothing."""
        return bool(self.options.name) and self.deduplicate()

    async def publish(
        self, messages: Sequence[OutMessage], *, batch: bool = True, requests: Sequence[Request | None] = ()
    ) -> list[Result]:
        """Store messages and return one result each, in their order; a bad one fails alone.

        With `batch`, neighbours for one partition and schema version share an entry; delayed and encrypted
        messages and requests never do. While deduplication is on, a message with a sequence id that the client chose is stored
        once under a name; messages without one are never repeats. `requests` are what `ask` gave for them.
        """
        self.check()
        now, name = self._clock.now_ms(), self.name if self._tracked() else None
        items: list[Item[OutMessage]] = []
        by_topic: dict[int, list[Item[OutMessage]]] = {}
        bytes_max, alone, numbers = self._bytes_max, len(self.topics) == 1, self._numbers
        for message in messages:
            sequence_id = message.sequence_id
            item = Item(message, None if sequence_id is None else name)
            items.append(item)
            if not alone or message.partition is not None or len(message.payload) > bytes_max:
                try:
                    number = self._choose(message)
                except PenstockError as error:
                    item.settle(error)
                    continue
                by_topic.setdefault(number, []).append(item)
            if sequence_id is None:
                message.sequence_id = sequence_id = numbers.next
                numbers.next = sequence_id + 1
            elif numbers.next <= sequence_id < RAISING_MAX:
                numbers.next = sequence_id + 1
            item.sequence_id = sequence_id
        if requests:
            for item, request in zip(items, requests, strict=True):
                item.request = request
                if item.result is not None:
                    item.settle(item.result)
                elif request is not None:
                    self._requests.numbered(request, (self._topic, self.name, item.sequence_id))
        if alone:
            accepted = [item for item in items if item.result is None]
            by_topic = {0: accepted} if accepted else {}

        pack = partial(self._pack_batches if batch else self._pack_each, now=now)
        work = [publish(self.topics[number], chosen, pack) for number, chosen in by_topic.items()]
        for done in [await work[0]] if len(work) == 1 else await asyncio.gather(*work):
            self.published += done.messages
        return [internal_error() if item.result is None else item.result for item in items]

    def _choose(self, message: OutMessage) -> int:
        """The partition of a message; raises why it cannot be published."""
        size = len(message.payload)
        if size > self._bytes_max:
            raise PenstockError(
                ErrorKind.TOO_LARGE, f"a message of {size} bytes; the most is {self._bytes_max}"
            )
        return self._router.choose(message.key, message.partition)

    def _pack_each(self, new: Sequence[Item[OutMessage]], *, now: int) -> Packed[OutMessage]:
        messages = [item.content for item in new]
        entries = self._batches.encode_each(messages, producer=self.name, publish_time=now)
        tracked = [item for item in new if item.producer is not None]
        if not tracked and not [entry for entry in entries if entry.deliver_at]:
            return Packed(NewRun([entry.data for entry in entries], now))
        if len(tracked) < len(new):
            for item, entry in zip(new, entries, strict=True):
                entry.producer = item.producer or ""
        return Packed(entries)

    def _pack_batches(self, new: Sequence[Item[OutMessage]], *, now: int) -> Packed[OutMessage]:
        runs = cut(new, batch_sizes([item.content for item in new]))
        return Packed([self._encode(run, now) for run in runs], runs)

    def _encode(self, run: Sequence[Item[OutMessage]], now: int) -> NewEntry:
        first = run[0]
        entry = self._batches.encode(
            [item.content for item in run],
            producer=self.name,
            sequence_id=first.sequence_id,
            publish_time=now,
            schema_version=first.content.schema_version,
        )
        tracked = [item.sequence_id for item in run if item.producer is not None]
        entry.producer = self.name if tracked else ""
        if tracked:
            entry.sequence_id = max(tracked)
        return entry

    async def publish_entries(self, items: Sequence[Item[NewEntry]]) -> list[Result]:
        """Store entries that the client made and counted in the one topic; a result each, in order.

        Repeats are recognised by the highest sequence id in an entry, of this producer or of the one that its item names. Raises why the producer was closed by others.
        """
        self.check()
        (topic,) = self.topics
        tracked = self.deduplicate()
        for item in items:
            if not tracked:
                item.content.producer, item.producer = "", None
            elif item.chunk_of < 0:
                item.producer, item.sequence_id = item.producer or self.name, item.content.sequence_id
            elif item.chunk_of <= topic.sequences.last(self.name):
                item.settle(UNKNOWN_ID)
        done = await publish(topic, [item for item in items if item.result is None], whole)
        self.published += done.messages
        return [internal_error() if item.result is None else item.result for item in items]

    def ask(self, messages: Sequence[OutMessage], timeouts: Sequence[int | None]) -> Sequence[Request | None]:
        return self._requests.ask(messages, timeouts)

    async def request(self, message: OutMessage, timeout_ms: int) -> Reply:
        """Publish a request and return its reply. Cancelling withdraws the wait.

        Raises REQUEST_TIMEOUT, UNAVAILABLE when the server stops, and what publishing raises.
        """
        self.check()
        topic = self.topics[self._choose(message)]
        producer = self.name if message.sequence_id is not None and self._tracked() else None
        (request,) = self._requests.ask((message,), (timeout_ms,))
        assert request is not None
        sequence_id = self._numbers.give(message)
        request.enter((self._topic, self.name, sequence_id))
        try:
            entry = self._batches.encode(
                (message,),
                producer=self.name,
                sequence_id=sequence_id,
                publish_time=self._clock.now_ms(),
                schema_version=message.schema_version,
            )
            entry.producer = producer or ""
            item = Item(entry, producer, sequence_id, request)
            done = await publish(topic, (item,), whole)
            self.published += done.messages
            if isinstance(item.result, PenstockError):
                raise item.result
            return await request.reply()
        finally:
            request.withdraw()

    def _leave(self) -> None:
        self._detach(self)
