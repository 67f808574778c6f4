"""The topics of batches that this process stages for, and those that are to be deleted."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from penstock.client.entries.arrived import Place
from penstock.client.errors import TopicNotFound
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .parts import PartWriter, Staged, has_grown, read_batch
from .space import StagingSpace

IDLE_MS: Final = 5_000  # then the topic of a batch is left, so that it can be deleted
DELETING_MS: Final = 120_000  # how long it is tried; then it is the cluster's to delete, as nobody uses it
ATTEMPTS: Final = 3
_GONE: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)

log = logging.getLogger(__name__)


class PartWriters:
    """One for each batch, while parts of it come."""

    def __init__(self, space: StagingSpace, clock: Clock) -> None:
        self._space = space
        self._clock = clock
        self._open: dict[TopicName, PartWriter] = {}
        self._locks: Locks[TopicName] = Locks()
        self._deleting: dict[TopicName, tuple[Place, int]] = {}

    async def take(self, topic: TopicName) -> PartWriter:
        """One that stays until it is given back."""
        async with self._locks.hold(topic):
            found = self._open.get(topic)
            if found is None or found.ended:
                found = self._open[topic] = await self._connect(topic)
            found.busy += 1
            return found

    async def _connect(self, topic: TopicName) -> PartWriter:
        for left in reversed(range(ATTEMPTS)):
            made = PartWriter(self._space, topic, self._clock)
            try:
                await made.open()
            except BaseException as error:
                await made.close()
                if not left or not isinstance(error, TopicNotFound):  # deleted just now, after another commit
                    raise
            else:
                return made
        raise AssertionError("the last attempt returns or raises")

    def give_back(self, writer: PartWriter) -> None:
        """It is not used by this caller any more."""
        writer.busy -= 1
        writer.used_ms = self._clock.monotonic_ms()

    async def leave(self, topic: TopicName) -> None:
        """Leave a batch's topic, unless parts of it are coming."""
        found = self._open.get(topic)
        if found is not None and not found.busy:
            del self._open[topic]
            await found.close()

    async def drop(self, writer: str, batch: int, held: Staged, names: Sequence[str]) -> None:
        """Drop some of the stages that are held; with the last of them goes the topic, at once or when nobody uses it."""
        topic = self._space.batch_of(writer, batch)
        every = set(names) >= set(held.stages)
        if every:
            await self.leave(topic)
            if await self._delete(topic, held.last):
                return
        parts = await self.take(topic)
        try:
            for name in names:
                await parts.drop(name)
        finally:
            self.give_back(parts)
        if every:
            left = await read_batch(self._space, writer, batch)
            if not left.stages:
                self._deleting[topic] = left.last, self._clock.monotonic_ms() + DELETING_MS

    async def _delete(self, topic: TopicName, last: Place) -> bool:
        """Delete a batch's topic, unless something came after `last` or it is in use; whether it is gone."""
        try:
            return not await has_grown(self._space, topic, last) and await self._space.delete(topic)
        except PenstockError as error:
            if error.kind not in _GONE:
                raise
            return True

    async def sweep(self) -> None:
        """Leave topics for which no part came lately, and delete what can be deleted now."""
        now = self._clock.monotonic_ms()
        for topic, writer in list(self._open.items()):
            if writer.used_ms < now - IDLE_MS or writer.ended:
                await self.leave(topic)
        for topic, (last, until) in list(self._deleting.items()):
            if topic in self._open:
                continue
            try:
                over = await self._delete(topic, last)
            except PenstockError as error:
                log.warning("%s could not be deleted: %s", topic, error.message)
                over = False
            if over or now > until:
                del self._deleting[topic]

    async def close(self) -> None:
        """Leave all."""
        writers = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(writer.close() for writer in writers))
