"""Publishing of whole entries, as clients made them. The cluster stores them one by one: what was stored before an error stays."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final

from penstock.broker.acting import acting_key
from penstock.broker.staging import Published
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import UNKNOWN_ID
from penstock.model.names import TopicName
from penstock.model.policy import InForce, ProducerOptions
from penstock.wire.contents import parse_head

from .producer import Producer

PRODUCERS_MAX: Final = 1024  # that are kept; each leaves its topic by itself when it is not used
# A broker connects one producer of a name at a time. The one that has the name leaves after its answer; others wait for that.
NAME_WAIT_S: Final = 5.0
NAME_RETRY_S: Final = 0.05

Open = Callable[[TopicName, ProducerOptions], Awaitable[Producer]]


class EntryPublishing:
    """What `Broker.append_entries` does."""

    def __init__(self, open_producer: Open, in_force: Callable[[TopicName], InForce]) -> None:
        self._open = open_producer
        self._in_force = in_force
        self._producers: OrderedDict[tuple[TopicName, str, bool], Producer] = OrderedDict()

    async def append(self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool) -> Published:
        """As `Broker.append_entries`, but not all or none. `deduplicate` needs deduplication in the cluster, and then
        each producer of the entries has its name there; else one producer publishes them all, under numbers of its own."""
        if deduplicate and not self._in_force(topic.name).deduplication:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED,
                f"the cluster does not tell repeats in {topic.name.namespace_name}: deduplication is off there"
                " (brokerDeduplicationEnabled, or the namespace's policy)",
            )
        done = Published()
        # Where a namespace wants encrypted entries only, the first that is none is refused.
        encrypted = bool(entries) and bool(parse_head(entries[0].data)[0].encryption_keys)
        for name, run in groupby(entries, lambda entry: entry.producer if deduplicate else ""):
            if deduplicate:
                await self._publish_named(topic.name, name, list(run), done, encrypted=encrypted)
            else:
                producer = await self._producer(topic.name, encrypted=encrypted)
                await self._publish(producer, list(run), done)
        return done

    async def _publish_named(
        self, topic: TopicName, name: str, entries: Sequence[NewEntry], done: Published, *, encrypted: bool
    ) -> None:
        """Publish under the entries' own name: the broker returns the last sequence id of a name only to its producer."""
        producer = await self._open_named(topic, ProducerOptions(name=name, encrypted=encrypted))
        try:
            await self._publish(producer, entries, done)
        finally:
            producer.close()
            await producer.left()

    async def _open_named(self, topic: TopicName, options: ProducerOptions) -> Producer:
        loop = asyncio.get_running_loop()
        until = loop.time() + NAME_WAIT_S
        while True:
            try:
                return await self._open(topic, options)
            except PenstockError as error:
                if error.kind is not ErrorKind.PRODUCER_BUSY or loop.time() >= until:
                    raise
            await asyncio.sleep(NAME_RETRY_S)

    async def _publish(self, producer: Producer, entries: Sequence[NewEntry], done: Published) -> None:
        for result in await producer.append(entries):
            if isinstance(result, PenstockError):
                raise result
            if result == UNKNOWN_ID:
                done.repeats += 1
            elif done.first is None:
                done.first = result
        if producer.options.name:
            done.last_sequence_id = producer.figures().last_sequence_id

    async def _producer(self, name: TopicName, *, encrypted: bool) -> Producer:
        key = name, acting_key(), encrypted
        found = self._producers.pop(key, None)
        if found is None or found.closed:
            found = await self._open(name, ProducerOptions(stateless=True, encrypted=encrypted))
        self._producers[key] = found
        if len(self._producers) > PRODUCERS_MAX:
            _, oldest = self._producers.popitem(last=False)
            oldest.close()
        return found
