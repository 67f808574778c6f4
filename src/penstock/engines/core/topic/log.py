"""The log of a topic: its entries, in memory or in the store, and how far they go."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.log import LogBounds
from penstock.engines.core.ports import LogState, Store
from penstock.engines.shared.tail import Tail, TailCache, follow_until
from penstock.engines.subscription.store import READ_BYTES
from penstock.model.entry import Entry, Stretch
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

TIME_MAX: Final = 2**63 - 1  # ms; what the store can compare


class Kept:
    """The entries of one topic in memory, oldest first, as `(entry id, offset, bytes)`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: deque[tuple[int, int, int]] = deque()

    def add(self, entry_id: int, offset: int, size: int) -> None:
        self._entries.append((entry_id, offset, size))
        self._bytes += size

    def first_after_letting_go(self) -> tuple[int, int] | None:
        """Trim the oldest entries beyond the bound; returns the first entry that stays, None if all do.

        The newest entry always stays.
        """
        gone = False
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            self._bytes -= self._entries.popleft()[2]
            gone = True
        return self._entries[0][:2] if gone else None

    @property
    def bytes(self) -> int:
        return self._bytes


class TopicLog:
    """`broker.Log`: reads of a topic, and waits for new entries. `next_entry` and `next_offset` are those of the next append."""

    dense = True

    def __init__(
        self,
        name: TopicName,
        state: LogState,
        store: Store,
        tails: TailCache,
        clock: Clock,
        *,
        terminated: bool,
    ) -> None:
        self.name = name
        self.partition = max(0, name.partition)
        self.clock = clock
        self.ledger = state.ledger
        self.first_entry = state.first_entry
        self.next_entry = state.next_entry
        self.first_offset = state.first_offset
        self.next_offset = state.next_offset
        self.size_bytes = state.size_bytes
        self.store = self.documents = store
        self.terminated = terminated
        self.deleted = False
        self.read_bytes_max = READ_BYTES  # what one read may bring: a single entry may be larger
        self.followers: set[Callable[[], None]] = set()  # called when the log grew, ended or was deleted
        self._tails = tails
        self._tail = Tail()

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

    async def refresh(self) -> None:
        """Nothing to do: the log knows its bounds."""

    def check_open(self) -> None:
        if self.terminated:
            raise PenstockError(ErrorKind.TOPIC_TERMINATED, f"{self.name} is terminated")
        self.check_there()

    def check_there(self) -> None:
        """Raise once the topic is deleted."""
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        await follow_until(
            self.followers, lambda: self.next_offset > beyond or self.terminated or self.deleted, timeout_ms
        )
        return self.next_offset > beyond

    # -- entries

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is still in memory."""
        return self._tail.get(entry_id)

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        return self._tail.slice(entry_id, entries_max, READ_BYTES)

    def gap_end(self, entry_id: int) -> int:
        """No id is skipped."""
        return entry_id

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        entry_id = max(entry_id, self.first_entry)
        if entry_id >= self.next_entry:
            return []
        held = self._tail.slice(entry_id, entries_max, bytes_max)
        if held:
            return held
        return await self.store.read(self.ledger, entry_id, entries_max, bytes_max)

    async def read_runs(
        self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES
    ) -> Sequence[Stretch]:
        entry_id = max(entry_id, self.first_entry)
        if entry_id >= self.next_entry:
            return []
        held = self._tail.slice(entry_id, entries_max, bytes_max)
        return held or await self.store.read_runs(self.ledger, entry_id, entries_max, bytes_max)

    async def size_since(self, entry_id: int) -> int:
        return await self.store.size_since(self.ledger, entry_id)

    async def find_size(self, size_bytes: int) -> Entry | None:
        return await self.store.find_size(self.ledger, size_bytes)

    def has_read(self, size: int) -> None:
        if size > self.read_bytes_max:
            self.read_bytes_max = size

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        if offset >= self.next_offset:
            return []
        return await self.read(await self.entry_at(offset), entries_max, bytes_max)

    async def entry(self, entry_id: int) -> Entry:
        if not self.first_entry <= entry_id < self.next_entry:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        found = await self.read(entry_id, 1)
        if not found or found[0].entry_id != entry_id:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        return found[0]

    # -- offsets

    async def entry_at(self, offset: int) -> int:
        if offset >= self.next_offset:
            return self.next_entry
        if offset <= self.first_offset:
            return self.first_entry
        held = self._tail.find(offset)
        if held is not None:
            return held.entry_id
        found = await self.store.find_offset(self.ledger, offset)
        return self.next_entry if found is None else found.entry_id

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id == EARLIEST:
            return self.first_offset
        if message_id == LATEST:
            return self.next_offset
        if message_id.ledger != self.ledger:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"message id {message_id} is not of {self.name}")
        if message_id.entry < self.first_entry:
            return self.first_offset
        if message_id.entry >= self.next_entry:
            return self.next_offset
        entry = await self.entry(message_id.entry)
        if message_id.batch_index >= 0:
            return min(entry.end, entry.offset + message_id.batch_index + (0 if inclusive else 1))
        return entry.offset if inclusive else entry.end

    async def offset_at_time(self, publish_time: int) -> int:
        found = await self.store.find_time(self.ledger, min(max(0, publish_time), TIME_MAX))
        return self.next_offset if found is None else found.offset

    def id_of(self, entry: Entry, index: int) -> MessageId:
        if index < 0:
            return MessageId(self.ledger, entry.entry_id, self.name.partition)
        return MessageId(self.ledger, entry.entry_id, self.name.partition, index, entry.count)
