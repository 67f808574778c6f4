"""The log of a topic or partition of Kafka: a record is an entry of one message, whose id and offset are Kafka's offset.

Ids rise and may skip, as transactions and compaction leave gaps: what a read returns has none, and what lies between the id
that was asked for and the first entry is no record. A log with followers is followed itself, and its newest entries are held
in memory; other positions are read by readers that all logs share. Where it begins and ends is what was learned last.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.broker.log import LogBounds
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .driver.fetcher import Fetcher
from .driver.reader import OutOfRange
from .driver.record import Record
from .followed import FollowedLog
from .framing import Framings, UnknownSchemas
from .naming import Place
from .records import entries_of

READ_BYTES: Final = 1 << 20
TAIL_WAIT_MS: Final = 1000  # for an entry that the log is known to have, and that is on its way here
TRIES: Final = 3  # of a read that retention overtakes
TIME_MAX: Final = 2**63 - 1  # Kafka's
SAMPLE: Final = 100  # entries that sizes are estimated by


class KafkaLog(FollowedLog):
    """`broker.Log`, and what a subscription reads."""

    terminated = False
    dense = False

    def __init__(
        self,
        name: TopicName,
        place: Place,
        fetcher: Fetcher,
        clock: Clock,
        framings: Framings | None = None,
    ) -> None:
        super().__init__(name, place, fetcher, clock, framings)
        self.partition = place.partition
        self.read_bytes_max = READ_BYTES

    @property
    def first_entry(self) -> int:
        return self.first_offset

    @property
    def next_entry(self) -> int:
        return self.next_offset

    @property
    def size_bytes(self) -> int:
        """Estimated by the entries that were seen here."""
        return (self.next_offset - self.first_offset) * self._bytes // max(1, self._count)

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(
            self.first_entry,
            self.next_entry,
            self.first_offset,
            self.next_offset,
            self.size_bytes,
            self.terminated,
        )

    # -- entries

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is in memory."""
        return self._tail.get(entry_id)

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        """Entries from `entry_id` on that are in memory, up to `entries_max`."""
        return self._tail.slice(entry_id, entries_max, READ_BYTES)

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        self.used_ms = self.clock.monotonic_ms()
        entry_id = max(entry_id, self.first_offset)
        if entry_id >= self.next_offset:
            return []
        if self._is_coming(entry_id):
            await self._wait(entry_id, TAIL_WAIT_MS, in_tail=True)
        held = self._tail.slice(self.gap_end(entry_id), entries_max, bytes_max)
        return held or await self._fetch(entry_id, entries_max, bytes_max)

    async def _fetch(self, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        for _ in range(TRIES):
            try:
                found = await self._fetcher.read(self._at, entry_id, entries_max, bytes_max, self.next_offset)
            except OutOfRange:
                await self.refresh()
                entry_id = max(entry_id, self.first_offset)
                if entry_id >= self.next_offset:
                    return []
                continue
            if not found.records:
                self._gap(entry_id, found.end)
                return []
            first = found.records[0].offset()
            self._gap(entry_id, first)
            entries = await self._opened(found.records, first)
            self._measure(entries)
            return entries
        raise PenstockError(ErrorKind.UNAVAILABLE, f"entries of {self.name} are deleted as they are read")

    async def _opened(self, records: Sequence[Record], first: int) -> list[Entry]:
        """The entries of records; schemas that they name are learned first."""
        framings = self.framings
        if framings is None:
            return entries_of(records, first, self.ledger)
        while True:
            try:
                return entries_of(records, first, self.ledger, framings.framing(self.name))
            except UnknownSchemas as unknown:
                await framings.learn_ids(self.name, unknown)

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        return await self.read(offset, entries_max, bytes_max)

    async def entry(self, entry_id: int) -> Entry:
        if entry_id >= self.next_offset:
            await self.refresh()
        found = await self.read(entry_id, 1) if entry_id >= self.first_offset else []
        if not found or found[0].entry_id != entry_id:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        return found[0]

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        if self.next_offset <= beyond and not self.deleted:
            await self._wait(beyond, timeout_ms, in_tail=False)
        return self.next_offset > beyond

    async def _wait(self, beyond: int, timeout_ms: float, *, in_tail: bool) -> None:
        """Wait until the log (`in_tail`: what came here) ends after `beyond`, nothing more can come, or time is over."""
        changed = asyncio.Event()
        self.followers.add(changed.set)
        try:
            async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
                while not self.deleted:
                    if (self._expected if in_tail else self.next_offset) > beyond or (
                        in_tail and not (self._live or self._beginning)
                    ):
                        return
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            self.followers.discard(changed.set)

    def has_read(self, size: int) -> None:
        self.read_bytes_max = max(self.read_bytes_max, size)

    # -- search

    async def entry_at(self, offset: int) -> int:
        return min(max(offset, self.first_offset), self.next_offset)

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id == EARLIEST:
            return self.first_offset
        if message_id == LATEST:
            return self.next_offset
        if message_id.ledger != self.ledger:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"message id {message_id} is not of {self.name}")
        if message_id.entry >= self.next_offset:
            await self.refresh()
        # An entry that a client made of a batch became several records: their ids count from the first one's.
        offset = message_id.entry + max(0, message_id.batch_index) + (0 if inclusive else 1)
        return min(max(offset, self.first_offset), self.next_offset)

    async def offset_at_time(self, publish_time: int) -> int:
        found = await self._fetcher.at_time(self._at, min(max(0, publish_time), TIME_MAX))
        return self.next_offset if found < 0 else found

    async def size_since(self, entry_id: int) -> int:
        """As `broker.Log.size_since`, estimated by the entries that were seen here."""
        count = self.next_offset - max(entry_id, self.first_offset)
        if count <= 0:
            return 0
        await self._sample()
        return count * self._bytes // max(1, self._count)

    async def find_size(self, size_bytes: int) -> Entry | None:
        """As `broker.Log.find_size`, estimated likewise."""
        await self._sample()
        count = size_bytes * self._count // max(1, self._bytes)
        found = await self.read(self.next_offset - count, 1) if count else []
        return found[0] if found else None

    async def _sample(self) -> None:
        if not self._count and self.next_offset > self.first_offset:
            await self.read(max(self.first_offset, self.next_offset - SAMPLE), SAMPLE)

    def id_of(self, entry: Entry, index: int) -> MessageId:
        return MessageId(self.ledger, entry.entry_id, self.name.partition)
