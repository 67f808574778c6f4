"""Publishing of whole entries, as clients made them: each message of an entry becomes a record."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.broker.producer import Item, Producer
from penstock.broker.staging import Published
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions

PRODUCERS_MAX: Final = 1024  # that are kept

Open = Callable[[TopicName, ProducerOptions], Awaitable[Producer]]


class EntryPublishing:
    """What `Broker.append_entries` does."""

    def __init__(self, open_producer: Open) -> None:
        self._open = open_producer
        self._producers: OrderedDict[TopicName, Producer] = OrderedDict()

    async def append(self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool) -> Published:
        """As `Broker.append_entries`, but not all or none: entries stored before an error stay."""
        if deduplicate:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED, "Kafka does not tell repeats: it has no deduplication"
            )
        done = Published()
        producer = await self._producer(topic.name)
        for result in await producer.publish_entries([Item(entry) for entry in entries]):
            if isinstance(result, PenstockError):
                raise result
            if done.first is None:
                done.first = result
        return done

    async def _producer(self, name: TopicName) -> Producer:
        found = self._producers.pop(name, None)
        if found is None or found.closed:
            found = await self._open(name, ProducerOptions())
        self._producers[name] = found
        if len(self._producers) > PRODUCERS_MAX:
            self._producers.popitem(last=False)[1].close()
        return found
