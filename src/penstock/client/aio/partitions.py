"""A producer's publishers, one for a topic or for each of its partitions, and which of them a message goes to."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from penstock.client.enums import PartitionsRoutingMode
from penstock.client.errors import PulsarException
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.options import MessageRouter
from penstock.client.schema.schema import Schema
from penstock.client.session.batch import Sending
from penstock.client.session.commands import Publication
from penstock.model.hashing import java_string_hash
from penstock.model.message import Message as Stored
from penstock.model.message import OutMessage
from penstock.model.names import TopicName

from .context import Context
from .publisher import Publisher
from .tasks import log

REFRESH_S: Final = 60.0  # how often new partitions are looked for, as in Pulsar's clients

# The system's: the state of the `random` module belongs to the application, and forked processes share theirs.
_RANDOM: Final = random.SystemRandom()


class Router:
    """Keys by their hash, as Pulsar's clients compute it; the others round robin, or all to one partition.

    With batching, round robin stays with a partition for as long as a batch may: else every message would
    be a separate batch.
    """

    def __init__(self, mode: PartitionsRoutingMode, sending: Sending) -> None:
        self._single = mode is PartitionsRoutingMode.UseSinglePartition
        self._sending = sending
        self._cursor = _RANDOM.randrange(1 << 31)
        self._since = float("-inf")
        self._count = 0

    def choose(self, key: str | None, partitions: int, now: float) -> int:
        """The number of the partition."""
        if key:
            return java_string_hash(key) % partitions
        if self._single:
            return self._cursor % partitions
        sending = self._sending
        self._count += 1
        if (
            not sending.batching
            or self._count > sending.batch_count_max
            or now - self._since >= sending.batch_delay_s
        ):
            self._cursor += 1
            self._since, self._count = now, 1
        return self._cursor % partitions


class Partitions:
    """Made by `open_partitions`. `lazy` connects to a partition when its first message comes."""

    def __init__(
        self,
        context: Context,
        how: Publication,
        sending: Sending,
        schema: Schema,
        mode: PartitionsRoutingMode,
        router: MessageRouter | None,
        *,
        lazy: bool,
    ) -> None:
        self.topic = how.topic
        self._context = context
        self._how = how
        self._sending = sending
        self._schema = schema
        self._own_router = router
        self._router = Router(mode, sending)
        self._lazy = lazy
        self._all: list[Publisher] = []
        self._started: set[Publisher] = set()
        self._only: Publisher | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self.on_settled: Callable[[], None] | None = None

    async def open(self, count: int) -> None:
        """Connect to a topic of so many partitions, 0 for one that has none."""
        if count == 0:
            name = TopicName.parse(self.topic)
            self._only = self._publisher(self._how, name.partition)
            self._all = [self._only]
            await self._start(self._only)
            return
        await self._grow(count)
        if self._lazy:
            await self._start(self._all[self._router.choose(None, count, time.time())])
        self._refreshing = self._context.tasks.spawn(self._refresh(), f"look for partitions of {self.topic}")

    @property
    def only(self) -> Publisher | None:
        """The one publisher of a topic without partitions."""
        return self._only

    @property
    def looks(self) -> bool:
        """Whether a router of the user's own has to see every message."""
        return self._own_router is not None

    def any(self, message: OutMessage | None) -> Publisher:
        """The publisher for a message; None: one that is nothing but its payload."""
        if self._only is not None:
            return self._only
        count = len(self._all)
        if self._own_router is not None and message is not None:
            number = self._own_router(_preview(message, self.topic, self._schema), count)
        else:
            number = self._router.choose(None if message is None else message.key, count, time.time())
        publisher = self._all[number]
        if publisher not in self._started:
            self._started.add(publisher)
            self._context.tasks.spawn(self._start_late(publisher), f"connect to {publisher.topic}")
        return publisher

    @property
    def count(self) -> int:
        """How many messages wait for receipts."""
        if self._only is not None:
            return self._only.outbox.count
        return sum(publisher.outbox.count for publisher in self._all)

    @property
    def name(self) -> str:
        return next((p.outbox.name for p in self._all if p.outbox.name), self._how.name or "")

    @property
    def last_sequence_id(self) -> int:
        return max(publisher.outbox.last_sequence_id for publisher in self._all)

    @property
    def connected(self) -> bool:
        return all(publisher.connected for publisher in self._started)

    async def flush(self) -> None:
        """Wait until everything is settled."""
        await asyncio.gather(*(publisher.flush() for publisher in self._all))

    async def close(self) -> None:
        """Leave the topic."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        results = await asyncio.gather(*(p.close() for p in self._all), return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    def _settled(self) -> None:
        if self.on_settled is not None:
            self.on_settled()

    def _publisher(self, how: Publication, partition: int) -> Publisher:
        return Publisher(self._context, how, self._sending, partition, self._schema, self._settled)

    async def _start(self, publisher: Publisher) -> None:
        self._started.add(publisher)
        await publisher.start()

    async def _start_late(self, publisher: Publisher) -> None:
        try:
            await publisher.start()
        except PulsarException as error:
            publisher._end(error)

    async def _grow(self, count: int) -> None:
        name = TopicName.parse(self.topic)
        more = []
        for number in range(len(self._all), count):
            topic = str(name.of_partition(number))
            more.append(self._publisher(replace(self._how, topic=topic), number))
        if not self._lazy:
            results = await asyncio.gather(*(self._start(p) for p in more), return_exceptions=True)
            failures = [error for error in results if isinstance(error, BaseException)]
            if failures:
                await asyncio.gather(*(p.close() for p in more if p.connected), return_exceptions=True)
                raise failures[0]
        self._all += more

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                count = await self._context.lookup.partitions(self.topic)
                if count > len(self._all):
                    await self._grow(count)
            except PulsarException as error:
                log.info("the partitions of %s are not known now: %s", self.topic, error)


def _preview(out: OutMessage, topic: str, schema: Schema) -> Message:
    """A message as a router of the user's own sees it."""
    stored = Stored(
        payload=out.payload,
        key=out.key,
        key_is_base64=out.key_is_base64,
        ordering_key=out.ordering_key,
        properties=out.properties or {},
        event_time=out.event_time,
    )
    return Message(stored, MessageId(), topic, 0, schema)
