"""Records of Kafka: as they are read, and to be stored."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

At = tuple[str, int]  # a topic and its partition
RECORD_BYTES: Final = 200  # approximate overhead of a record

Header = tuple[str, bytes | None]


class Record(Protocol):
    """One record (librdkafka's message). Each call makes a new object: ask once."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[Header] | None: ...
    def timestamp(self) -> tuple[int, int]:
        """Its kind (0: it has none), and ms since the epoch."""

    def __len__(self) -> int:
        """The bytes of the value."""


def contiguous(records: Sequence[Record], first: int) -> int:
    """The number of records at the beginning with the offsets `first`, `first + 1`, …: the index of the first gap."""
    if records[-1].offset() - first == len(records) - 1:
        return len(records)
    for at, record in enumerate(records):
        if record.offset() != first + at:
            return at
    return len(records)


class NewRecord(msgspec.Struct, gc=False):
    """A record to be stored. `timestamp` is ms since the epoch, 0: when it is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: list[Header] | None = None
    timestamp: int = 0

    def size(self) -> int:
        """The bytes of its value, key and headers."""
        size = 0
        if self.value is not None:
            size += len(self.value)
        if self.key is not None:
            size += len(self.key)
        if self.headers is not None:
            size += sum([len(name) + len(value or b"") for name, value in self.headers])
        return size
