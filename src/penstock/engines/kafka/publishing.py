"""Records of one call on their way to the partitions of a topic, and what all producers of a process share."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import cast

from penstock.broker.producer import Placement, Request, Result
from penstock.broker.schemas import Schemas
from penstock.engines.shared.publishing import Router, partition_of_bytes
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import Request as OwnRequest
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Payloads
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.runtime.clock import Clock, LoopClock
from penstock.runtime.tasks import finished

from .driver.producer import LINGER_MS, RecordProducer
from .driver.record import Header, NewRecord
from .framing import Framing, UnknownVersion
from .headers import schema_header
from .policies import RetentionTimes
from .records import records_of
from .schema_registry.formats import FramedSchemas
from .topic import KafkaTopic
from .topics import KafkaTopics

_CLOCK = LoopClock()


class Publishing:
    """What producers publish with. `bytes_max` bounds a message's payload."""

    def __init__(
        self,
        records: RecordProducer,
        schemas: Schemas,
        replies: Replies,
        framings: FramedSchemas | None,
        retention: RetentionTimes,
        topics: KafkaTopics,
        *,
        bytes_max: int,
        partitioner: Partitioner,
    ) -> None:
        self.records = records
        self.schemas = schemas
        self.replies = replies
        self.bytes_max = bytes_max
        self.check_delay = retention.check_delay
        self.partitioner = partitioner
        self._topics = topics
        self.framings = framings  # if there is a schema registry

    async def framing(self, topic: TopicName, versions: Iterable[int | None]) -> Framing | None:
        """The framing of a topic's values, if there is a schema registry, which was asked for these versions.

        Raises UNAVAILABLE, SCHEMA_NOT_FOUND.
        """
        framings = self.framings
        if framings is None:
            return None
        for version in versions:
            if version is not None and not framings.framing(topic).knows(version):
                await framings.find_version(topic, version)
        return framings.framing(topic)

    async def records_of(self, topic: TopicName, entry: NewEntry, *, numbered: bool) -> list[NewRecord]:
        """As `records.records_of`; schemas that are not known here are asked for once. Raises SCHEMA_NOT_FOUND for one that values of
        the topic cannot be written by."""
        versions: list[int] = []
        while True:
            framing = await self.framing(topic, versions)
            try:
                return records_of(entry, numbered=numbered, framing=framing)
            except UnknownVersion as unknown:
                if unknown.version in versions:
                    raise
                versions.append(unknown.version)

    def key_partitions(self, log: KafkaTopic) -> "KeyPartitions":
        """Chooses partitions for records that a client of Pulsar's protocol sent to one partition of a topic."""
        return KeyPartitions(log, self._topics, self.partitioner)

    def address(self, topic: TopicName, records: Iterable[NewRecord], request: Request | None) -> None:
        """Let the reply to the request among records of one entry reach its waiting requester, if any."""
        if not isinstance(request, OwnRequest):
            return
        for record in records:
            if any(name == REQUEST_TIMEOUT_PROPERTY for name, _ in record.headers or ()):
                found = self.replies.properties(topic.namespace_name, request)
                own = [(name, value) for name, value in record.headers or () if name not in found]
                record.headers = [*own, *((name, value.encode()) for name, value in found.items())]
                return

    async def plain(
        self, name: TopicName, topic: KafkaTopic, payloads: Payloads, version: int | None
    ) -> Placement | list[Result]:
        """Store messages that are nothing but payloads in one partition of the topic `name`.

        As `broker.Producer.publish_plain`.
        """
        values: Sequence[bytes | str | None] = payloads
        headers: Iterable[list[Header] | None] = repeat(None if version is None else schema_header(version))
        framing = await self.framing(name, (version,))
        if framing is not None:
            framed = [
                framing.frame(None, one.encode() if isinstance(one, str) else one, version)
                for one in payloads
            ]
            values, headers = [value for _, value, _ in framed], [some or None for _, _, some in framed]
        topic.check_open()
        if topic.rates.publish is not None:
            await topic.rates.publish.admit(len(values), sum([len(value or b"") for value in values]))
        began = _CLOCK.monotonic_ms()
        at = topic.place.topic, topic.place.partition
        sent = self.records.send_values(at, values, headers)
        outcomes = await finished(sent.future)
        if _lacks_partition(outcomes):
            await self.records.refresh(topic.place.topic)
            sent = self.records.send_values(at, values, headers)
            outcomes = await finished(sent.future)
        stored = (
            [one for one in outcomes if isinstance(one, int)] if sent.failed else cast(list[int], outcomes)
        )
        count = len(stored)
        if count:
            topic.stored(stored[-1] + 1)
            topic.published(count, sent.size * count // len(outcomes), _CLOCK.monotonic_ms() - began)
        elif isinstance(outcomes[0], PenstockError):
            raise outcomes[0]
        if count == len(outcomes) and stored[-1] - stored[0] == count - 1:
            return Placement(topic, topic.ledger, stored[0], stored[0], count, batched=False)
        # Other producers published between them, or some failed.
        ledger, number = topic.ledger, topic.name.partition
        return [MessageId(ledger, one, number) if isinstance(one, int) else one for one in outcomes]


class KeyPartitions:
    """Chooses the partition of each record sent to `log`: by the record's key, as Kafka's clients do; without a key it is `log`.

    Pulsar's clients choose partitions by other hashes than Kafka's. For one call; `logs` are the partitions chosen so far.
    """

    def __init__(self, log: KafkaTopic, topics: KafkaTopics, partitioner: Partitioner) -> None:
        self.own = log.name.partition
        self.logs = {self.own: log}
        self._topics = topics
        self._partitioner = partitioner
        self._base = log.name.base
        self._count = topics.partitions(self._base)
        self._numbers: dict[bytes, int] = {}

    async def of(self, key: bytes | None) -> int:
        """The number of a record's partition. Raises UNAVAILABLE, and as `Topics.get`."""
        if key is None:
            return self.own
        number = self._numbers.get(key)
        if number is None:
            number = partition_of_bytes(self._partitioner, key, self._count)
            if number not in self.logs:
                self.logs[number] = await self._topics.get(self._base.of_partition(number), create=False)
            self._numbers[key] = number
        return number


class Turns:
    """The partitions of plain messages, in turn: for as long as a batch waits for more, all of them go to one.

    Each partition has separate requests, and records published within a moment take one instead of one for each partition.
    """

    def __init__(self, router: Router, clock: Clock) -> None:
        self._router = router
        self._clock = clock
        self._chosen = 0
        self._until_ms = 0

    def next(self) -> int:
        """The partition of the next messages."""
        now = self._clock.monotonic_ms()
        if now >= self._until_ms:
            self._until_ms = now + LINGER_MS
            self._chosen = self._router.choose(None, None)
        return self._chosen


class Posting:
    """Records of one call by partition, each with its place in `results`."""

    __slots__ = ("_places", "_records", "_results")

    def __init__(self, results: list[Result | None]) -> None:
        self._results = results
        self._records: dict[int, list[NewRecord]] = {}
        self._places: dict[int, list[int]] = {}

    def add(self, partition: int, place: int, record: NewRecord) -> None:
        """A record for a partition; the results have its place when it is posted."""
        records = self._records.get(partition)
        if records is None:
            records = self._records[partition] = []
            self._places[partition] = []
        records.append(record)
        self._places[partition].append(place)

    async def post(
        self, topics: Sequence[KafkaTopic] | Mapping[int, KafkaTopic], producer: RecordProducer
    ) -> int:
        """Send all, and set each one's result when it is known; returns how many were stored."""
        began = _CLOCK.monotonic_ms()
        sent = []
        for partition, records in self._records.items():
            topic = topics[partition]
            try:
                topic.check_open()
                if topic.rates.publish is not None:
                    await topic.rates.publish.admit(len(records), sum(one.size() for one in records))
            except PenstockError as error:
                for place in self._places[partition]:
                    self._results[place] = error
            else:
                at = topic.place.topic, topic.place.partition
                sent.append((topic, partition, producer.send(at, records)))
        stored = 0
        for topic, partition, one in sent:
            outcomes = await finished(one.future)
            if _lacks_partition(outcomes):
                await producer.refresh(topic.place.topic)
                again = producer.send((topic.place.topic, topic.place.partition), self._records[partition])
                outcomes = await finished(again.future)
            count = self._settle(topic, partition, outcomes)
            if count:
                took_ms = _CLOCK.monotonic_ms() - began
                topic.published(count, one.size * count // len(outcomes), took_ms)
            stored += count
        return stored

    def _settle(self, topic: KafkaTopic, partition: int, outcomes: Sequence[int | PenstockError]) -> int:
        """Set the results of records for one partition; returns how many were stored."""
        results, ledger, number = self._results, topic.ledger, topic.name.partition
        stored, last = 0, -1
        for place, outcome in zip(self._places[partition], outcomes, strict=True):
            if isinstance(outcome, PenstockError):
                results[place] = outcome
            else:
                results[place] = MessageId(ledger, outcome, number)
                stored += 1
                last = outcome  # they rise
        if stored:
            topic.stored(last + 1)
        return stored


def _lacks_partition(outcomes: Sequence[int | PenstockError]) -> bool:
    """Whether all failed because librdkafka does not know the partition yet."""
    return all(
        isinstance(one, PenstockError) and one.kind is ErrorKind.PARTITION_NOT_FOUND for one in outcomes
    )
