"""A record of Kafka, as it is read."""

from collections.abc import Sequence
from typing import Protocol

At = tuple[str, int]  # a topic and its partition
Header = tuple[str, bytes | None]


class Record(Protocol):
    """One record (librdkafka's message). Each call makes a new object: ask once."""

    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[Header] | None: ...
    def timestamp(self) -> tuple[int, int]:
        """Its kind (0: it has none), and ms since the epoch."""

    def __len__(self) -> int:
        """The bytes of the value."""


def contiguous(records: Sequence[Record], first: int) -> int:
    """How many records of the beginning have the offsets `first`, `first + 1`, … : where the first gap is."""
    if records[-1].offset() - first == len(records) - 1:
        return len(records)
    for at, record in enumerate(records):
        if record.offset() != first + at:
            return at
    return len(records)
