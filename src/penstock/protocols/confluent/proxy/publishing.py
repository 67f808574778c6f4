"""Records to messages of a topic, and their offsets: what every way to produce records has in common."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, require
from penstock.broker.log import Log
from penstock.broker.names import check_partition
from penstock.broker.producer import Placement, Result
from penstock.model.errors import PenstockError
from penstock.model.headers import Headers, properties_of
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.subjects import MAGIC
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.producer_cache import CachedProducer, ProducerCache

TIME_MAX: Final = 2**63 - 1


class NewRecord(msgspec.Struct, gc=False):
    """A record to store. `schema_version` is the topic's version of the schema of its value; `timestamp` is ms since the epoch, None:
    now. Without `partition` the key chooses it, and without a key they take turns."""

    key: bytes | None = None
    value: bytes | None = None
    schema_version: int | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None

    def is_like(self, first: "NewRecord") -> bool:
        """Whether it is nothing but a value, of the same schema and for the same partition as another one."""
        return (
            self.key is None
            and not self.headers
            and self.timestamp is None
            and self.schema_version == first.schema_version
            and self.partition == first.partition
        )


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Where a record was stored."""

    partition: int
    offset: int


class Publishing:
    """Publishes records. Permissions are the caller's to check."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._producers = ProducerCache(broker)
        self._timed = broker.record_formats is not None  # records have their own times, as in Kafka

    async def open(self, topic: TopicName) -> TopicSchemas:
        """Check that records of a topic can be published; returns the schemas that are published there. Raises TOPIC_NOT_FOUND, and
        NOT_SUPPORTED for a log without offsets."""
        require(self._broker.capabilities, Capability.OFFSETS)
        cached = self._producers.ready(topic)
        if cached is not None:
            return cached.topic_schemas
        await self._broker.topics.learn(topic)
        if not self._producers.may_make(topic):
            raise self._broker.topics.missing(topic)
        return TopicSchemas(self._broker.schemas, topic)

    def check_partitions(self, topic: TopicName, partitions: Sequence[int | None]) -> None:
        """Raise PARTITION_NOT_FOUND unless the topic has all of these, or will have them when it is made."""
        count = self._producers.partitions(topic)
        for partition in partitions:
            if partition is not None:
                check_partition(partition, count)

    async def publish(
        self, topic: TopicName, schemas: TopicSchemas, records: Sequence[NewRecord]
    ) -> list[Stored | PenstockError]:
        """Store records and return a result for each, in their order; a bad one fails alone. Creates the topic as configured.

        Raises why none could be stored.
        """
        cached = await self._producers.get(topic, "", schemas)
        producer, first = cached.producer, records[0]
        payloads = [one.value for one in records if one.value is not None and one.is_like(first)]
        if len(payloads) == len(records):
            size = sum(map(len, payloads))
            if producer.takes_plain(len(payloads), size, first.partition):
                placed = await producer.publish_plain(payloads, first.schema_version, first.partition)
                if isinstance(placed, Placement):
                    number, offset = placed.topic.partition, placed.offset
                    return [Stored(number, at) for at in range(offset, offset + placed.count)]
                return await _places(cached, placed)
        results = await producer.publish([_message(record, timed=self._timed) for record in records])
        return await _places(cached, results)


def _message(record: NewRecord, *, timed: bool) -> OutMessage:
    text, is_base64 = _text(record.key)
    at = record.timestamp or 0
    return OutMessage(
        payload=record.value or b"",
        key=text,
        key_is_base64=is_base64,
        null_value=record.value is None,
        properties=properties_of(record.headers),
        event_time=0 if timed else at,
        record_time=at if timed else 0,
        schema_version=record.schema_version,
        partition=record.partition,
    )


def _text(key: bytes | None) -> tuple[str | None, bool]:
    """The text of a key, and whether it is base64: of bytes that are not UTF-8, or begin like one with a schema."""
    if key is None:
        return None, False
    try:
        if not key.startswith(MAGIC):
            return key.decode(), False
    except UnicodeDecodeError:
        pass
    return b64encode(key).decode(), True


async def _places(cached: CachedProducer, results: Sequence[Result]) -> list[Stored | PenstockError]:
    logs = {max(0, log.name.partition): log for log in cached.producer.topics}
    begins: dict[tuple[int, int, int], int] = {}  # the offsets of entries
    found: list[Stored | PenstockError] = []
    for result in results:
        if isinstance(result, PenstockError):
            found.append(result)
            continue
        number = max(0, result.partition)
        entry = number, result.ledger, result.entry
        if entry not in begins:
            begins[entry] = await _offset(logs[number], result)
        found.append(Stored(number, begins[entry] + max(0, result.batch_index)))
    return found


async def _offset(log: Log, one: MessageId) -> int:
    return await log.offset_after(MessageId(one.ledger, one.entry, one.partition), inclusive=True)
