"""A log for subscriptions, in memory, whose ids may skip numbers."""

import asyncio
from collections.abc import Sequence

from penstock.broker.log import LogBounds
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.runtime.failures import Failures
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

LEDGER = 7


def entry_at(offset: int) -> Entry:
    key = f"k{offset % 3}"
    made = wire.encode(
        [OutMessage(payload=b"%d" % offset, key=key)],
        producer="p",
        sequence_id=offset,
        publish_time=1,
        schema_version=None,
    )
    return Entry(LEDGER, offset, offset, 1, 1, 0, made.data)


class SkippingLog:
    """A log in memory that has only some of its ids; the newest `tail` of them are at hand."""

    partition = 0
    terminated = deleted = False
    read_bytes_max = 1 << 20

    def __init__(self, clock: ManualClock) -> None:
        self.name = TopicName.parse("skipping")
        self.ledger = LEDGER
        self.clock = clock
        self.first_entry = self.first_offset = self.next_entry = self.next_offset = 0
        self.entries: dict[int, Entry] = {}
        self.ever: set[int] = set()
        self.tail = 4
        self.gaps: dict[int, int] = {}

    def grow(self, skip: int, count: int) -> None:
        for offset in range(self.next_offset + skip, self.next_offset + skip + count):
            self.entries[offset] = entry_at(offset)
        self.ever |= set(self.entries)
        self.next_entry = self.next_offset = self.next_offset + skip + count

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(
            self.first_entry, self.next_entry, self.first_offset, self.next_offset, 0, self.terminated
        )

    def peek(self, entry_id: int) -> Entry | None:
        return self.entries.get(entry_id) if entry_id >= self.next_entry - self.tail else None

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        return self._run(entry_id, entries_max) if entry_id >= self.next_entry - self.tail else []

    def gap_end(self, entry_id: int) -> int:
        return self.gaps.get(entry_id, entry_id)

    def _run(self, entry_id: int, entries_max: int) -> list[Entry]:
        found: list[Entry] = []
        while entry_id in self.entries and len(found) < entries_max:
            found.append(self.entries[entry_id])
            entry_id += 1
        return found

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = 0) -> list[Entry]:
        await asyncio.sleep(0)
        start = max(entry_id, self.first_entry)
        at = next((one for one in range(start, self.next_entry) if one in self.entries), self.next_entry)
        if at > entry_id:
            self.gaps[entry_id] = at
        return self._run(at, entries_max)

    async def entry(self, entry_id: int) -> Entry:
        if entry_id not in self.entries:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, "no entry")
        return self.entries[entry_id]

    async def entry_at(self, offset: int) -> int:
        return min(max(offset, self.first_entry), self.next_entry)

    def has_read(self, size: int) -> None:
        return None


class Host:
    """Nobody's."""

    failures = Failures(ManualClock())

    def check(self, *_: object) -> None: ...
    def moved(self, *_: object) -> None: ...
    def rewound(self) -> None: ...
    def removed(self, *_: object) -> None: ...
    async def bury(self, *_: object) -> None: ...
