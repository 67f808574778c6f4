"""The log of one topic or partition: its positions, and its entries by position."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from penstock.model.entry import Entry, Stretch
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock


class LogBounds(msgspec.Struct, frozen=True):
    """The bounds of a log at one moment. Entry ids and offsets grow; `next_…` are those of the next append."""

    first_entry: int
    next_entry: int
    first_offset: int
    next_offset: int
    size_bytes: int
    terminated: bool

    @property
    def messages(self) -> int:
        """How many offsets the log has."""
        return self.next_offset - self.first_offset


class Log(Protocol):
    """One log, as its readers see it. The bounds of a cluster's log are those that `refresh` learned last."""

    @property
    def name(self) -> TopicName: ...
    @property
    def partition(self) -> int:
        """The partition's number; 0 of a topic without partitions."""

    @property
    def clock(self) -> Clock: ...
    @property
    def read_bytes_max(self) -> int:
        """What one read may bring, in bytes."""

    async def refresh(self) -> None:
        """Learn the present bounds of the log; does nothing if the engine stores the log itself."""

    @property
    def ledger(self) -> int:
        """The ledger of its entries; -1 if they are in many: then each entry names its own."""

    @property
    def dense(self) -> bool:
        """Whether every offset has a message: else there may be offsets without one between two messages."""

    @property
    def bounds(self) -> LogBounds: ...
    @property
    def deleted(self) -> bool: ...

    async def entry_at(self, offset: int) -> int:
        """The id of the entry that holds `offset`; the next one at the end of the log."""

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        """The offset of the first message after `message_id` (or of it); raises BAD_PARAMETER."""

    async def offset_at_time(self, publish_time: int) -> int:
        """The offset of the first message published at or after `publish_time` (ms); the end if there is none.

        If publish times do not rise with offsets, the result depends on the engine: see "Times" in docs/spark.md.
        """

    async def size_since(self, entry_id: int) -> int:
        """Bytes of data in the entries from `entry_id` (or the first there is) on."""

    async def find_size(self, size_bytes: int) -> Entry | None:
        """The first entry that has at most `size_bytes` of data in itself and all after it; None without one."""

    def id_of(self, entry: Entry, index: int) -> MessageId:
        """The id of message `index` of an entry; -1 for one that was sent alone."""

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = ...) -> list[Entry]:
        """Entries from `entry_id` (or the first there is) on; empty at the end of the log."""

    async def read_runs(self, entry_id: int, entries_max: int, bytes_max: int = ...) -> Sequence[Stretch]:
        """The same as it is had at the least cost: entries, and runs of them."""

    def gap_end(self, entry_id: int) -> int:
        """The id that follows a gap beginning at `entry_id`, as far as reading has shown it; `entry_id` if there is none."""

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = ...) -> list[Entry]:
        """Entries from the one that holds `offset` on."""

    async def entry(self, entry_id: int) -> Entry:
        """One entry; raises MESSAGE_NOT_FOUND when the log does not hold it."""

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        """Wait until there is a message at offset `beyond`, or no more can come; False after the timeout."""

    def has_read(self, size: int) -> None:
        """A read brought `size` bytes: the next may, too."""
