"""Messages gathered to entries, for each partition by itself.

Where an entry ends depends on the messages before it and on nothing else, so that a task that is repeated over
the same rows makes the same entries.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from penstock.model.message import OutMessage
from penstock.wire.bulk import batch_entry
from penstock.wire.entry import WireFormat

MESSAGES_MAX: Final = 1000
BYTES_MAX: Final = 256 << 10

SEQUENCE_BITS: Final = 32  # of a message's number within its batch


class BatchBuilder:
    """What is on its way to one log. `log` is its full name."""

    def __init__(
        self, log: str, producer: str, batch: int, schema_version: int | None, compression: int
    ) -> None:
        self.log = log
        self._producer = producer
        self._first = self._next = (batch & 0x7FFFFFFF) << SEQUENCE_BITS
        self._schema_version = schema_version
        self._compression = compression
        self._parts: list[bytes] = []
        self._count = 0
        self.size = 0

    @property
    def last_sequence_id(self) -> int | None:
        """The number of the last message that went out; None before the first."""
        return self._next - 1 if self._next > self._first else None

    def add(self, messages: Any) -> Iterator[bytes]:
        """Add packed messages (an array of bytes, without nulls); the entries that are full."""
        offsets = np.frombuffer(messages.buffers()[1], np.int32)
        offsets = offsets[messages.offset : messages.offset + len(messages) + 1]
        data = memoryview(messages.buffers()[2])
        at, end = 0, len(messages)
        while at < end:
            room = offsets[at] + BYTES_MAX - self.size
            until = int(np.searchsorted(offsets, room, side="right")) - 1
            until = min(until, at + MESSAGES_MAX - self._count, end)
            if until <= at:
                if self._count:
                    yield self.flush()
                    continue
                until = at + 1  # one that is larger than an entry should be
            self._parts.append(bytes(data[offsets[at] : offsets[until]]))
            self._count += until - at
            self.size += int(offsets[until] - offsets[at])
            at = until
            if self._count >= MESSAGES_MAX:
                yield self.flush()

    def use(self, schema_version: int | None) -> Iterator[bytes]:
        """What is added from now on is of that version; an entry has one, so what was gathered goes out before."""
        if schema_version != self._schema_version:
            yield from self.finish()
            self._schema_version = schema_version

    def flush(self) -> bytes:
        """The entry of what was gathered."""
        entry = batch_entry(
            b"".join(self._parts),
            self._count,
            producer=self._producer,
            sequence_id=self._next,
            publish_time=time.time_ns() // 1_000_000,
            schema_version=self._schema_version,
            compression=self._compression,
        )
        self._next += self._count
        self._parts.clear()
        self._count = self.size = 0
        return entry

    def finish(self) -> Iterator[bytes]:
        """The entry of what is left."""
        if self._count:
            yield self.flush()

    def alone(self, message: OutMessage) -> Iterator[bytes]:
        """The entry of a message that shares none; what was gathered goes before it."""
        yield from self.finish()
        entry = WireFormat().encode(
            [message],
            producer=self._producer,
            sequence_id=self._next,
            publish_time=time.time_ns() // 1_000_000,
            schema_version=self._schema_version,
        )
        self._next += 1
        yield entry.data
