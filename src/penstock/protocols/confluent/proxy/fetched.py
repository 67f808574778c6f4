"""The records that one fetch of a group member finds in its logs."""

from typing import Final, NamedTuple

from penstock.broker.groups import GroupRecord, TopicPartition
from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.model.message_id import MessageId

from .entries import records_of

ENTRIES_MAX: Final = 1000  # of one read
RECORDS_MAX: Final = 10_000  # of one fetch


class Fetched(NamedTuple):
    """A position that is not committed, and the id of the entry that ends there, if the last fetch ended with one."""

    offset: int
    last: MessageId | None


class FoundRecords:
    """The records of one fetch, by partition, with the positions behind them."""

    def __init__(self, bytes_max: int) -> None:
        self.records: dict[TopicPartition, list[GroupRecord]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.fetched: dict[TopicPartition, Fetched] = {}
        self.count = 0
        self.size = 0
        self._bytes_max = bytes_max
        self._full = False

    def has_room(self) -> bool:
        return not self._full

    async def read(self, one: TopicPartition, log: Topic, at: int) -> None:
        """Read a partition from an offset on, as far as there is room; the first record has room in any case."""
        self.positions[one] = at
        while at < log.bounds.next_offset and self.has_room():
            wanted = max(1, self._bytes_max - self.size)
            entries = await log.read_at(at, ENTRIES_MAX, min(wanted, log.read_bytes_max))
            if not entries:
                break
            log.has_read(sum([len(entry.data) for entry in entries]))
            for entry in entries:
                at = self._take(one, log, entry, at)
                if not self.has_room():
                    break

    def _take(self, one: TopicPartition, log: Topic, entry: Entry, at: int) -> int:
        """Take the records of an entry from an offset on; returns the position behind those that were taken."""
        before, after = len(taken := self.records.setdefault(one, [])), entry.end
        for record in records_of(one, entry, at):
            size = record.size
            if self.count and (self.size + size > self._bytes_max or self.count == RECORDS_MAX):
                self._full, after = True, record.offset
                break
            taken.append(record)
            self.count += 1
            self.size += size
        self.positions[one] = after
        if len(taken) > before:
            self.fetched[one] = Fetched(after, log.id_of(entry, -1) if after >= entry.end else None)
        return after


class SeenRecords:
    """The records that a fetch which waits for more has seen: how many, their bytes, and the positions behind them."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self._count = 0
        self._bytes = 0

    def are_enough(self, found: FoundRecords, bytes_max: int, bytes_min: int) -> bool:
        """Whether the fetch returns, with further records."""
        count, size = self._count + found.count, self._bytes + found.size
        return count > 0 and (
            size >= min(bytes_min, bytes_max) or count >= RECORDS_MAX or not found.has_room()
        )

    def add(self, found: FoundRecords) -> None:
        self.positions |= found.positions
        self._count += found.count
        self._bytes += found.size
