"""Messages gathered to entries, for each partition by itself, and entries sent in parts of a few MiB.

The end of an entry depends only on the messages before it, so that a task that is repeated over
the same rows makes the same entries. Parts go to a stage, or to their topics at once; one is on its way while the next
is made.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import numpy as np

from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.model.message import OutMessage
from penstock.model.stage import StageKey
from penstock.pipeline.errors import BatchConflict
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.wire import entry as wire
from penstock.wire.bulk import batch_entry, pack_sections

MESSAGES_MAX: Final = 1000
BYTES_MAX: Final = 256 << 10

SEQUENCE_BITS: Final = 32  # of a message's number within its batch

logger = logging.getLogger(__name__)

PART_BYTES: Final = 2 << 20  # small enough that others' publishes come in between, large enough to be cheap


class BatchBuilder:
    """The messages in flight to one log. `log` is its full name."""

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
        """The entry of gathered messages."""
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
        """The entry of remaining messages."""
        if self._count:
            yield self.flush()

    def alone(self, message: OutMessage) -> Iterator[bytes]:
        """The entry of a message that shares none; gathered messages go before it."""
        yield from self.finish()
        entry = wire.encode(
            [message],
            producer=self._producer,
            sequence_id=self._next,
            publish_time=time.time_ns() // 1_000_000,
            schema_version=self._schema_version,
        )
        self._next += 1
        yield entry.data


class EntryWriter:
    """Entries in, parts out. A context manager; leaving it ends requests in flight."""

    def __init__(self, server: Access) -> None:
        self.stages = Stages(server)
        self.parts = 0
        self.size_bytes = 0
        self._sections: dict[str, list[bytes]] = {}
        self._held = 0
        self._executor = ThreadPoolExecutor(1, "penstock-sink")
        self._sending: Future[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._executor.shutdown()
        if kind is not None:
            self.give_up()
        self.stages.close()

    def put(self, log: str, entry: bytes) -> None:
        """Take an entry for a log. Raises what became of the part before."""
        self._sections.setdefault(log, []).append(entry)
        self._held += len(entry)
        self.size_bytes += len(entry)
        if self._held >= PART_BYTES:
            self._send()

    def finish(self) -> None:
        """Send the rest, and wait until all has arrived."""
        if self._sections:
            self._send()
        self._arrived()

    def _send(self) -> None:
        body = b"".join(pack_sections(self._sections.items()))
        self._sections, self._held = {}, 0
        self._arrived()
        self._sending = self._executor.submit(self.send, self.parts, body)
        self.parts += 1

    def _arrived(self) -> None:
        if self._sending is not None:
            sending, self._sending = self._sending, None
            sending.result()

    def send(self, part: int, body: bytes) -> None:
        """Send one part; it is in the hands of the server when this returns."""
        raise NotImplementedError

    def confirm(self, last: Mapping[str, int]) -> None:
        """All has arrived; `last` says by log with which sequence id it ends. Raises BatchConflict."""

    def give_up(self) -> None:
        """The task failed."""


class StagingWriter(EntryWriter):
    """To a stage that this task has for itself."""

    def __init__(self, server: Access, key: StageKey) -> None:
        super().__init__(server)
        self._key = key

    def send(self, part: int, body: bytes) -> None:
        key = self._key
        self.stages.stage(key.writer, key.batch, key.stage, part, body)

    def give_up(self) -> None:
        """Drop the stage; what cannot be dropped now expires on the server."""
        drop(self.stages, [self._key])

    def count(self, messages: int) -> StageCount:
        """The stage as it was sent."""
        return StageCount(self._key.stage, self.parts, messages, self.size_bytes)


class PublishingWriter(EntryWriter):
    """To the topics at once; `deduplicate`: what they have is passed over."""

    def __init__(self, server: Access, *, deduplicate: bool) -> None:
        super().__init__(server)
        self._deduplicate = deduplicate
        self._repeats = 0  # entries that were passed over
        self._stored: dict[str, int] = {}  # by log, the last sequence id that it has of this task's producer

    def send(self, part: int, body: bytes) -> None:
        for result in self.stages.publish(body, deduplicate=self._deduplicate)["results"]:
            self._repeats += result["repeats"]
            self._stored[result["topic"]] = result["last_sequence_id"]

    def confirm(self, last: Mapping[str, int]) -> None:
        """A task that repeats one ends where that ended. If a topic has more of its producer, what was passed over
        was no repeat: it would be lost."""
        if not self._deduplicate:
            return
        for log, sequence_id in last.items():
            if (stored := self._stored[log]) != sequence_id:
                raise BatchConflict(
                    f"{log} has messages of this task's producer up to {_place(stored)} already, and now the task ends at"
                    f" {_place(sequence_id)}"
                )
        if self._repeats:
            logger.warning(
                "%d entries of this task are in their topics already: they are a repeat and are not written again",
                self._repeats,
            )


def _place(sequence_id: int) -> str:
    number = sequence_id & ((1 << SEQUENCE_BITS) - 1)
    return f"message {number} of batch {sequence_id >> SEQUENCE_BITS}"


def drop(stages: Stages, keys: Sequence[StageKey]) -> None:
    """Drop stages, as far as the server is there."""
    for key in keys:
        try:
            stages.drop(key.writer, key.batch, key.stage)
        except PenstockError:
            return
