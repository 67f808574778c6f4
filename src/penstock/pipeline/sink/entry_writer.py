"""Where a task's entries go, in parts of a few MiB: to a stage, or to their topics at once.

A part is on its way while the next is made.
"""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.model.stage import StageKey
from penstock.pipeline.errors import BatchConflict
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.wire.bulk import pack_sections

from .entries import SEQUENCE_BITS

logger = logging.getLogger(__name__)

PART_BYTES: Final = 2 << 20  # small enough that others' publishes come in between, large enough to be cheap


class EntryWriter:
    """Entries in, parts out. To be used as a context manager; leaving it ends what is on its way."""

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
        """Drop the stage; what cannot be dropped now is swept by the server some day."""
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
        """A task that repeats one ends where that ended. Where a topic has more of its producer, what was passed over
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
