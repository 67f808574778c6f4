"""A producer: messages in, entries appended, one result a message (PIP-64, PIP-43, Pulsar's WebSocket API)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from penstock.engines.embedded.ports import Clock, EntryFormat
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo

from .requests import Reply, Request, Requests
from .routing import Router
from .runs import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, entries_of
from .topic import Topic

SCHEMAS_MAX: Final = 1000  # schemas a producer remembers the versions of

Result = MessageId | PenstockError


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a batch of plain messages was stored: message i has the batch index i (none when alone)."""

    topic: Topic
    entry_id: int
    offset: int
    count: int


class Producer:
    """Publishes to the partitions of one topic under one name.

    `version_of` finds or registers a schema for the topic; `deduplicate` says whether explicit sequence ids
    count; `message_bytes_max` bounds one message.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[Topic],
        options: ProducerOptions,
        *,
        encoder: EntryFormat,
        clock: Clock,
        version_of: Callable[[SchemaInfo], Awaitable[int | None]],
        deduplicate: Callable[[], bool],
        message_bytes_max: int,
        detach: Callable[["Producer"], None],
        requests: Requests,
        topic: str,
    ) -> None:
        self.name = name
        self.topics = list(topics)
        self.options = options
        self.connected_ms = clock.now_ms()
        self.published = 0
        self.owner: str | None = None  # the role it publishes for; None: of several, or authentication is off
        self.proxy: str | None = None  # the role that made it for its owner; None: the owner itself
        self.closed = False
        self.close_reason: PenstockError | None = None
        self.ousted: Callable[[PenstockError], None] | None = None  # told when it is closed by others
        self.deduplicate = deduplicate
        self._encoder = encoder
        self._clock = clock
        self._version_of = version_of
        self._bytes_max = message_bytes_max
        self._detach = detach
        self._versions: dict[object, int | None] = {}
        self._requests = requests
        self._topic = topic
        self._asked: dict[int, Request] = {}  # requests not stored yet, by the identity of their messages
        self._router = Router(len(self.topics), options.routing, options.hashing)
        last = max(topic.sequences.last(name) for topic in self.topics)
        self.last_sequence_id = max(options.initial_sequence_id, last)
        self._next_sequence = self.last_sequence_id + 1

    # -- the common case, fast

    async def publish_plain(
        self, payloads: Sequence[bytes], schema_version: int | None, partition: int | None = None
    ) -> Placement:
        """Store messages that are nothing but payloads as one entry, all or none.

        For a topic of one partition, or with `partition` given; all within the bounds of a batch.
        """
        self.check()
        topic = self.topics[self._router.choose(None, partition)]
        sequence_id = self._next_sequence
        self._next_sequence = sequence_id + len(payloads)
        entry = self._encoder.encode_plain(
            payloads,
            producer=self.name,
            sequence_id=sequence_id,
            publish_time=self._clock.now_ms(),
            schema_version=schema_version,
        )
        tracked = bool(self.options.name) and self.deduplicate()
        if not tracked:
            entry.producer = ""  # nobody repeats what a made-up name published: nothing to remember
        placed = await topic.append((entry,))
        self.published += entry.count
        if tracked:
            last = MessageId(topic.ledger, placed.entry_id, topic.name.partition)
            topic.sequences.stored(self.name, sequence_id + len(payloads) - 1, last)
        return Placement(topic, placed.entry_id, placed.offset, entry.count)

    def grow(self, topics: Sequence[Topic]) -> None:
        """The topic has more partitions now: publish to them too."""
        if len(topics) > len(self.topics):
            self.topics = list(topics)
            self._router.grow(len(topics))

    def takes_plain(self, payloads: Sequence[bytes], partition: int | None) -> bool:
        """Whether `publish_plain` fits."""
        return (
            (len(self.topics) == 1 or partition is not None)
            and 0 < len(payloads) <= BATCH_MESSAGES_MAX
            and sum(map(len, payloads)) <= min(BATCH_BYTES_MAX, self._bytes_max)
        )

    # -- the general case

    async def publish(self, messages: Sequence[OutMessage], *, batch: bool = True) -> list[Result]:
        """Store messages and return one result each, in their order; a bad one fails alone.

        With `batch`, neighbours for one partition and schema version share an entry; delayed and encrypted
        messages and requests never do. Messages with a sequence id already published are not stored again while deduplication is on.
        """
        self.check()
        results: list[Result | None] = [None] * len(messages)
        now = self._clock.now_ms()
        by_topic: dict[int, list[int]] = {}
        repeats: list[tuple[int, asyncio.Future[MessageId]]] = []
        tracked = self.deduplicate() and bool(self.options.name)  # a made-up name repeats nothing
        for index, message in enumerate(messages):
            try:
                if len(message.payload) > self._bytes_max:
                    raise PenstockError(
                        ErrorKind.TOO_LARGE,
                        f"a message of {len(message.payload)} bytes; the most is {self._bytes_max}",
                    )
                number = self._router.choose(message.key, message.partition)
            except PenstockError as error:
                results[index] = error
                self._failed_request(message, error)
                continue
            given = message.sequence_id
            self.number(message)
            if given is not None and tracked:
                earlier = self.topics[number].sequences.admit(self.name, given)
                if earlier is not None:
                    repeats.append((index, earlier))
                    continue
            by_topic.setdefault(number, []).append(index)
        work = [
            self._publish_to(self.topics[n], messages, chosen, results, now, batch=batch, tracked=tracked)
            for n, chosen in by_topic.items()
        ]
        if len(work) == 1:
            await work[0]
        elif work:
            await asyncio.gather(*work)
        for index, earlier in repeats:
            try:
                made = await asyncio.shield(earlier)
                results[index] = made
                self._placed(messages[index], made)
            except PenstockError as error:
                results[index] = error
                self._failed_request(messages[index], error)
        return [r if r is not None else _internal() for r in results]

    async def _publish_to(
        self,
        topic: Topic,
        messages: Sequence[OutMessage],
        chosen: list[int],
        results: list[Result | None],
        now: int,
        *,
        batch: bool,
        tracked: bool,
    ) -> None:
        runs = entries_of(messages, chosen, batch=batch)
        try:
            entries = [self._encode(messages, run, now, tracked=tracked) for run in runs]
            placed = await topic.append(entries)
        except Exception as error:
            told = error if isinstance(error, PenstockError) else _internal()
            self._failed(topic, messages, chosen, told, tracked=tracked)
            for index in chosen:
                results[index] = told
            if not isinstance(error, PenstockError):
                raise
            return
        except BaseException:
            self._failed(topic, messages, chosen, _internal(), tracked=tracked)
            raise
        number, entry_id = topic.name.partition, placed.entry_id
        for run in runs:
            alone = len(run) == 1
            for at, index in enumerate(run):
                made = (
                    MessageId(topic.ledger, entry_id, number)
                    if alone
                    else MessageId(topic.ledger, entry_id, number, at, len(run))
                )
                results[index] = made
                if self._asked:
                    self._placed(messages[index], made)
                if tracked:
                    topic.sequences.stored(self.name, messages[index].sequence_id or 0, made)
            entry_id += 1
        self.published += len(chosen)

    def _failed(
        self,
        topic: Topic,
        messages: Sequence[OutMessage],
        chosen: list[int],
        error: PenstockError,
        *,
        tracked: bool,
    ) -> None:
        for index in chosen:
            self._failed_request(messages[index], error)
        if tracked:
            for index in chosen:
                topic.sequences.failed(self.name, messages[index].sequence_id or 0, error)

    def _encode(self, messages: Sequence[OutMessage], run: list[int], now: int, *, tracked: bool) -> NewEntry:
        first = messages[run[0]]
        entry = self._encoder.encode(
            [messages[i] for i in run],
            producer=self.name,
            sequence_id=first.sequence_id or 0,
            publish_time=now,
            schema_version=first.schema_version,
        )
        if tracked:
            entry.producer = self.name
            entry.sequence_id = max(messages[i].sequence_id or 0 for i in run)
        else:
            entry.producer = ""
        return entry

    async def schema_version(self, schema: SchemaInfo) -> int | None:
        """The version of a schema on this topic, registered when it is new (PIP-43); None for bytes.

        What was once answered is remembered, up to a bound. Raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA.
        """
        key = (schema.type, schema.data, tuple(sorted(schema.properties.items())))
        if key not in self._versions:
            version = await self._version_of(schema)
            if len(self._versions) >= SCHEMAS_MAX:
                self._versions.clear()
            self._versions[key] = version
        return self._versions[key]

    def number(self, message: OutMessage) -> None:
        """Give a message the next sequence id, unless it has one."""
        if message.sequence_id is None:
            message.sequence_id = self._next_sequence
            self._next_sequence += 1
        elif message.sequence_id >= self._next_sequence:
            self._next_sequence = message.sequence_id + 1

    def ask(self, message: OutMessage, timeout_ms: int) -> Request:
        """Make a message a request (PIP-371) and begin to wait for its reply; `publish` it next, alone or
        among others, those before it numbered. Raises BAD_PARAMETER for a senseless timeout."""
        self._requests.check(timeout_ms)
        self.number(message)
        request = self._requests.open(self._topic, self.name, message, timeout_ms)
        self._asked[id(message)] = request
        return request

    async def request(self, message: OutMessage, timeout_ms: int) -> Reply:
        """Publish a request and return its reply. Cancelling withdraws the wait.

        Raises REQUEST_TIMEOUT, UNAVAILABLE when the server stops, and what publishing raises.
        """
        request = self.ask(message, timeout_ms)
        try:
            (result,) = await self.publish([message], batch=False)
            if isinstance(result, PenstockError):
                raise result
            return await request.reply
        finally:
            self._asked.pop(id(message), None)
            request.withdraw()

    def _placed(self, message: OutMessage, message_id: MessageId) -> None:
        request = self._asked.pop(id(message), None)
        if request is not None:
            request.placed(message_id)

    def _failed_request(self, message: OutMessage, error: PenstockError) -> None:
        request = self._asked.pop(id(message), None) if self._asked else None
        if request is not None:
            request.fail(error)

    def check(self) -> None:
        """Raise why others closed it: one that was fenced off publishes nothing more."""
        if self.close_reason is not None:
            raise self.close_reason

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave the topic; harmless when repeated. `reason`: it was not the producer's own wish."""
        if not self.closed:
            self.closed = True
            self.close_reason = reason
            self._detach(self)
            if reason is not None and self.ousted is not None:
                self.ousted(reason)


def _internal() -> PenstockError:
    return PenstockError(ErrorKind.INTERNAL, "the message could not be published")
