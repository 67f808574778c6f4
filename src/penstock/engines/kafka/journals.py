"""Journals of logs: records of one topic that keeps everything, keyed by the log.

Those of one log are in one partition, among those of others. Which one is a hash of the key and of at most `PARTITIONS`, so that
partitions that are added change nothing.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from penstock.broker.journal import JournalLostError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import finished

from .cluster import KafkaCluster
from .driver.admin import Described
from .driver.fetcher import Fetcher
from .driver.producer import RecordProducer
from .driver.reader import OutOfRange
from .driver.record import At, NewRecord
from .naming import Naming

PARTITIONS: Final = 16
CONFIG: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LOOK_MS: Final = 10_000  # poll interval for a recreated topic
READ_RECORDS: Final = 1000
READ_BYTES: Final = 1 << 20


class KafkaJournals:
    """`broker.Journals`."""

    def __init__(
        self, cluster: KafkaCluster, naming: Naming, fetcher: Fetcher, records: RecordProducer, clock: Clock
    ) -> None:
        self.topic = cluster.settings.journals_topic
        self.fetcher = fetcher
        self.records = records
        self._cluster = cluster
        self._naming = naming
        self._clock = clock
        self._found: Described | None = None
        self._looked_ms = 0

    def open(self, log: TopicName, kind: str) -> "KafkaJournal":
        # A topic of one partition may be named with it and without.
        key = f"{self._naming.kafka_name(log.base)}-{max(0, log.partition)}.{kind}"
        return KafkaJournal(self, key.encode())

    def place(self, key: bytes, topic: Described) -> At:
        """The topic of the records of a journal."""
        return self.topic, crc32(key) % min(PARTITIONS, topic.partitions)

    async def find(self) -> Described | None:
        """The topic, as last seen; None if it does not exist."""
        now = self._clock.monotonic_ms()
        if self._found is None or now - self._looked_ms >= LOOK_MS:
            self._found = await self._cluster.admin.describe(self.topic)
            self._looked_ms = now
        return self._found

    async def have(self) -> Described:
        """The topic, created if missing."""
        found = await self.find()
        if found is None:
            found = self._found = await self._cluster.have(self.topic, PARTITIONS, CONFIG)
        return found

    def forget(self) -> None:
        """Look for the topic again: it was not there."""
        self._found = None


class KafkaJournal:
    """`broker.Journal`."""

    def __init__(self, journals: KafkaJournals, key: bytes) -> None:
        self._journals = journals
        self._key = key
        self._id = ""  # of the topic that was read
        self._offset = 0  # of the next record, of this journal or another

    async def read_on(self) -> Sequence[bytes]:
        try:
            return await self._read_on()
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise _unusable(self._journals.topic, error) from None
        except OutOfRange:
            pass
        self._journals.forget()
        if self._offset:
            raise JournalLostError
        return ()

    async def _read_on(self) -> Sequence[bytes]:
        journals = self._journals
        topic = await journals.find()
        if topic is None or (self._offset and topic.id != self._id):
            raise OutOfRange
        place = journals.place(self._key, topic)
        first, end = await journals.fetcher.ends(place)
        if self._offset and not first <= self._offset <= end:
            raise OutOfRange
        at = max(self._offset, first)
        rows: list[bytes] = []
        while at < end:
            found = await journals.fetcher.read(place, at, READ_RECORDS, READ_BYTES, end)
            for record in found.records:
                if record.key() == self._key:
                    rows.append(record.value() or b"")
                at = record.offset() + 1
            if not found.records:
                at = max(end, found.end)
        self._id, self._offset = topic.id, at
        return rows

    async def append(self, record: bytes) -> None:
        journals = self._journals
        try:
            place = journals.place(self._key, await journals.have())
        except PenstockError as error:
            raise _unusable(journals.topic, error) from None
        sent = journals.records.send(place, (NewRecord(record, self._key),))
        (outcome,) = await finished(sent.future)
        if isinstance(outcome, PenstockError):
            journals.forget()
            raise _unusable(journals.topic, outcome)


def _unusable(topic: str, error: PenstockError) -> PenstockError:
    """The error of a topic that the cluster does not let this server use: it is not the caller that is refused."""
    if error.kind is ErrorKind.UNAVAILABLE:
        return error
    return PenstockError(
        ErrorKind.UNAVAILABLE,
        f"byte positions cannot be kept: the server has to create, write and read {topic}. {error.message}",
    )
