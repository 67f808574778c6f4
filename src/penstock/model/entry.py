"""Entries: what a log stores and what goes over Pulsar's wire, unchanged (docs/architecture.md).

The bytes of an entry are Pulsar's own, with their checksum:

    0x0e01 | CRC-32C u32 | metadata size u32 | MessageMetadata | payload

where the payload may be a batch, compressed, encrypted or a chunk. The checksum covers all that follows it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, overload

import msgspec

HEAD_BYTES: Final = 22  # what a plain entry has before its payload


class NewEntry(msgspec.Struct, gc=False):
    """An entry to append. `sequence_id` is the highest in it; -1 and "" if deduplication does not apply."""

    data: bytes
    count: int  # messages in it, at least 1
    publish_time: int  # ms since the epoch
    deliver_at: int = 0  # ms since the epoch; 0: at once
    producer: str = ""
    sequence_id: int = -1


class NewRun(Sequence[NewEntry]):
    """Entries to append, by columns: each has one message, all are published at one time and delivered at once, and no sequence
    id of theirs is remembered. An entry is made only on request."""

    __slots__ = ("data", "publish_time", "size_bytes")

    def __init__(self, data: Sequence[bytes], publish_time: int) -> None:
        self.data = data
        self.publish_time = publish_time  # ms since the epoch
        self.size_bytes = sum(map(len, data))

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[NewEntry]:
        time = self.publish_time
        return iter([NewEntry(data, 1, time) for data in self.data])

    @overload
    def __getitem__(self, index: int) -> NewEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NewEntry]: ...
    def __getitem__(self, index: int | slice) -> NewEntry | Sequence[NewEntry]:
        if isinstance(index, slice):
            return NewRun(self.data[index], self.publish_time)
        return NewEntry(self.data[index], 1, self.publish_time)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry as stored. Its messages have the offsets `offset .. offset + count - 1`, dense in the log."""

    ledger: int
    entry_id: int
    offset: int
    count: int
    publish_time: int
    deliver_at: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after the entry's last message."""
        return self.offset + self.count

    @property
    def next_entry(self) -> int:
        return self.entry_id + 1


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The position of appended entries: the id and the offset of the first."""

    entry_id: int
    offset: int


class EntryRun(msgspec.Struct, frozen=True, gc=False):
    """Stored entries of one message each, by columns; their ids and offsets follow those of the first."""

    ledger: int
    entry_id: int
    offset: int
    sizes: bytes  # of the data of each, u32, little endian
    data: bytes  # of all, one after the other

    @property
    def count(self) -> int:
        return len(self.sizes) // 4

    @property
    def end(self) -> int:
        """The offset after the last."""
        return self.offset + self.count

    @property
    def next_entry(self) -> int:
        return self.entry_id + self.count


class RecordRun(msgspec.Struct, frozen=True, gc=False):
    """What is read of a log that stores no entries: messages that say nothing but this, each an entry, by columns. Their ids and
    offsets follow those of the first."""

    ledger: int
    entry_id: int
    offset: int
    times: Sequence[int]  # of publishing, ms since the epoch
    versions: Sequence[int | None]  # of their schema
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    @property
    def count(self) -> int:
        return len(self.times)

    @property
    def size_bytes(self) -> int:
        """What their entries would take, about."""
        contents = (*self.keys, *self.values)
        return sum([len(content) for content in contents if content is not None]) + HEAD_BYTES * self.count

    @property
    def end(self) -> int:
        """The offset after the last."""
        return self.offset + self.count

    @property
    def next_entry(self) -> int:
        return self.entry_id + self.count


Stretch = Entry | EntryRun | RecordRun  # of a log, as it is read
