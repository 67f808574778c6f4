"""Records of one call on their way to the partitions of a topic, and what all producers of a process share."""

from collections.abc import Iterable, Sequence

from penstock.broker.producer import Result
from penstock.broker.schemas import Schemas
from penstock.engines.shared.replies import Replies
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import LoopClock
from penstock.runtime.tasks import finished

from .driver.producer import RecordProducer
from .driver.record import NewRecord
from .framing import Framing, Framings, UnknownVersion
from .records import records_of
from .topic import KafkaTopic

_CLOCK = LoopClock()


class Publishing:
    """What producers publish with. `bytes_max` bounds a message's payload."""

    def __init__(
        self,
        records: RecordProducer,
        schemas: Schemas,
        replies: Replies,
        framings: Framings | None,
        *,
        bytes_max: int,
    ) -> None:
        self.records = records
        self.schemas = schemas
        self.replies = replies
        self.bytes_max = bytes_max
        self.framings = framings  # where there is a schema registry

    async def framing(self, topic: TopicName, versions: Iterable[int | None]) -> Framing | None:
        """The framing of a topic's values, where there is a schema registry, which was asked for these versions.

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
        """As `records.records_of`; schemas that are not known here are asked for."""
        versions: list[int] = []
        while True:
            framing = await self.framing(topic, versions)
            try:
                return records_of(entry, numbered=numbered, framing=framing)
            except UnknownVersion as unknown:
                versions.append(unknown.version)

    async def one(self, topic: KafkaTopic, record: NewRecord) -> int:
        """Store one record; returns its offset, or raises why it is not stored."""
        topic.check_open()
        if topic.rates.publish is not None:
            await topic.rates.publish.admit(1, record.size())
        began = _CLOCK.monotonic_ms()
        sent = self.records.send((topic.place.topic, topic.place.partition), (record,))
        (outcome,) = await finished(sent.future)
        if isinstance(outcome, PenstockError):
            raise outcome
        topic.stored(outcome + 1)
        topic.published(1, sent.size, _CLOCK.monotonic_ms() - began)
        return outcome


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

    async def post(self, topics: Sequence[KafkaTopic], producer: RecordProducer) -> int:
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
