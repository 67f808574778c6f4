"""What a subscription is given: a log, which may be another than a topic of this engine, and room to read it."""

from collections.abc import Callable
from typing import Protocol

from penstock.engines.embedded.ports import Clock
from penstock.engines.embedded.ports.log import READ_BYTES
from penstock.model.entry import Entry
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName


class SubscribedLog(Protocol):
    """The log that a subscription reads. Who appends to it wakes the subscription.

    Entry ids and offsets grow; `next_…` is what the next append gets.
    """

    name: TopicName
    ledger: int
    clock: Clock
    first_entry: int
    next_entry: int
    first_offset: int
    next_offset: int
    size_bytes: int
    read_bytes_max: int  # what one read may bring
    terminated: bool

    @property
    def partition(self) -> int:
        """The partition's number; 0 of a topic without partitions."""

    async def entry_at(self, offset: int) -> int:
        """The id of the entry that holds `offset`; the next one at the end of the log."""

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        """The offset of the first message after `message_id` (or of it); raises BAD_PARAMETER."""

    async def offset_at_time(self, publish_time: int) -> int:
        """The offset of the first message published at or after `publish_time` (ms); the end when none was."""

    def id_of(self, entry: Entry, index: int) -> MessageId:
        """The id of message `index` of an entry; -1 for one that was sent alone."""

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is in memory."""

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries from `entry_id` (or the first there is) on; empty at the end of the log."""

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries from the one that holds `offset` on."""

    async def entry(self, entry_id: int) -> Entry:
        """One entry; raises MESSAGE_NOT_FOUND when the log does not hold it."""

    def has_read(self, size: int) -> None:
        """A read brought `size` bytes: the next may, too."""


class Budget(Protocol):
    """What the principal of a consumer may have in memory, over all its connections."""

    @property
    def over(self) -> bool:
        """Whether it has more than it may."""

    def send(self, size: int) -> None:
        """Count `size` bytes more that wait to be sent; below zero: fewer."""

    def has_room(self, size: int) -> bool:
        """Whether it may have `size` bytes more."""

    def reserve(self, size: int) -> bool:
        """Count `size` bytes that are about to be read; False, and nothing is counted, without room."""

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, when there may be room."""
