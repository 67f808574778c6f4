"""A log of a cluster and its journal as several processes see them, for tests without a cluster."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from penstock.broker.journal import JournalLostError
from penstock.broker.log import LogBounds
from penstock.model.entry import Entry
from penstock.model.names import TopicName
from penstock.protocols.kafka_rest.blocks import Blocks
from penstock.protocols.kafka_rest.framing import payloads_in
from penstock.protocols.kafka_rest.shared_positions import SharedPositions
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

NAME = TopicName.parse("foo")


class ClusterLog:
    """Entries by offsets, which may skip; the first of them may go."""

    def __init__(self, ledger: int = 1) -> None:
        self.ledger = ledger
        self.entries: list[Entry] = []
        self.first = 0
        self.next = 0
        self.appended = 0
        self.marks = 0
        self.grew = asyncio.Event()

    def append(self, *payloads: bytes, skip: int = 0) -> Entry:
        """Append an entry; `skip` offsets before it are no message's."""
        data = wire.encode_plain(
            list(payloads), producer="p", sequence_id=0, publish_time=1, schema_version=None
        ).data
        entry = Entry(self.ledger, self.appended, self.next + skip, len(payloads), self.appended, 0, data)
        self.entries.append(entry)
        self.appended += 1
        self.next = entry.end
        self.grew.set()
        self.grew = asyncio.Event()
        return entry

    def mark(self) -> None:
        """Append an offset that is no message's."""
        self.next += 1
        self.marks += 1

    def trim(self, entries: int) -> None:
        """Let the first entries go."""
        del self.entries[:entries]
        self.first = self.entries[0].offset if self.entries else self.next


class TopicOfProcess:
    """`broker.Topic` as far as positions ask it: what was learned last."""

    ledger = -1
    deleted = False

    def __init__(self, log: ClusterLog, clock: ManualClock) -> None:
        self.name = NAME
        self.clock = clock
        self.first_entry = 0
        self.next_entry = 0
        self.reads = 0
        self._gap = (-1, -1)
        self._log = log

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(self.first_entry, self.next_entry, self.first_entry, self.next_entry, 0, False)

    async def refresh(self) -> None:
        await asyncio.sleep(0)
        if self._log.entries:
            self.first_entry, self.next_entry = self._log.first, self._log.next
        else:
            self.first_entry = self.next_entry  # where an empty log ends is not known

    def gap_end(self, entry_id: int) -> int:
        return self._gap[1] if entry_id == self._gap[0] else entry_id

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = 0) -> list[Entry]:
        await asyncio.sleep(0)
        self.reads += 1
        if entry_id >= self.next_entry:
            return []
        found = [one for one in self._log.entries if one.end > entry_id and one.offset < self.next_entry]
        if not found and self._log.marks:
            self._gap = (entry_id, self.next_entry)
        if not found or found[0].offset > entry_id:
            self.first_entry = self._log.first
        return found[:entries_max]

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        if self._log.next <= beyond:
            try:
                await asyncio.wait_for(self._log.grew.wait(), timeout_ms / 1000)
            except TimeoutError:
                return False
        self.next_entry = max(self.next_entry, next(one.end for one in self._log.entries if one.end > beyond))
        return True


class JournalOfProcess:
    """`broker.Journal` over a list that processes share."""

    def __init__(self, records: list[bytes]) -> None:
        self._records = records
        self._at = 0

    async def read_on(self) -> Sequence[bytes]:
        await asyncio.sleep(0)
        if len(self._records) < self._at:
            raise JournalLostError
        found = self._records[self._at :]
        self._at = len(self._records)
        return found

    async def append(self, record: bytes) -> None:
        await asyncio.sleep(0)
        self._records.append(record)
        await asyncio.sleep(0)


class Processes:
    """Some processes before one cluster."""

    def __init__(self, count: int = 2) -> None:
        self.log = ClusterLog()
        self.records: list[bytes] = []
        self.clock = ManualClock()
        self.topics: list[TopicOfProcess] = [TopicOfProcess(self.log, self.clock) for _ in range(count)]
        self.positions = [self._start(topic) for topic in self.topics]

    def _start(self, topic: Any) -> SharedPositions:
        open_journal: Callable[[], Any] = lambda: JournalOfProcess(self.records)  # noqa: E731
        return SharedPositions(topic, Blocks(), open_journal)

    def restart(self, number: int) -> None:
        """Have a process begin again, without what it has in memory."""
        self.topics[number] = TopicOfProcess(self.log, self.clock)
        self.positions[number] = self._start(self.topics[number])

    def make_anew(self) -> None:
        """Delete the topic, and make another one of its name."""
        self.log = ClusterLog(self.log.ledger + 1)
        for number in range(len(self.topics)):
            self.restart(number)

    async def look(self, number: int) -> dict[int, bytes]:
        """The payloads that a process gives, by their positions."""
        await self.topics[number].refresh()
        positions = self.positions[number]
        size = await positions.extend()
        found: dict[int, bytes] = {}
        at = positions.first
        for payload in payloads_in(await positions.frames(at, size)) if at < size else ():
            found[at] = payload
            at = await positions.boundary(at + 1)
        assert at == size
        return found
