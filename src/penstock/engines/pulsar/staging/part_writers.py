"""The parts of all writers: the topics of batches, those that this process stages for, and those that it deletes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.broker.staging import StagedBatch
from penstock.client.entries.arrived import Place
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.engines.attached.errors import engine_error
from penstock.engines.staging.ports import Interrupted, Outline, Runs
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .parts import PartWriter, Staged, has_grown, read_batch
from .space import StagingSpace
from .splitting import check_splits

IDLE_MS: Final = 5_000  # then the topic of a batch is left, so that it can be deleted
DELETING_MS: Final = 120_000  # how long it is tried; then it is the cluster's to delete, as nobody uses it
ATTEMPTS: Final = 3
_GONE: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)

log = logging.getLogger(__name__)


@asynccontextmanager
async def in_engine_words() -> AsyncIterator[None]:
    """The errors of the cluster as those of this server."""
    try:
        yield
    except PulsarException as error:
        refusal = engine_error(error)
        raise Interrupted(refusal.kind, refusal.message) from None


class PulsarParts:
    """`staging.Parts`: nothing is known but by reading. There is a producer for each batch while parts of it come."""

    def __init__(self, space: StagingSpace, clock: Clock) -> None:
        self._space = space
        self._clock = clock
        self._open: dict[TopicName, PartWriter] = {}
        self._locks: Locks[TopicName] = Locks()
        self._deleting: dict[TopicName, tuple[Place, int]] = {}

    async def start(self) -> None: ...

    def known(self, writer: str) -> Mapping[int, Staged]:
        return {}

    def expired(self, before: int) -> Sequence[Staged]:
        return []  # the cluster deletes topics that are not used

    @in_engine_words()
    async def batch(self, writer: str, number: int) -> Staged:
        return await read_batch(self._space, writer, number)

    async def batches(self, writer: str) -> Mapping[int, Staged]:
        return {number: await self.batch(writer, number) for number in await self._space.batches(writer)}

    async def outlines(self, writers: Sequence[str]) -> Sequence[Outline]:
        return [await self._outline(writer) for writer in writers]

    async def _outline(self, writer: str) -> Outline:
        batches = await self._space.batches(writer)
        sizes = [await self._space.size_of(self._space.batch_of(writer, batch)) for batch in batches]
        return {batch: StagedBatch(0, ()) for batch in batches}, sum(sizes)

    @in_engine_words()
    async def put(self, key: StageKey, part: int, checksum: int, runs: Runs, origin: str) -> None:
        if self._space.cluster.numbered:
            for _, run in runs:
                for entry in run:
                    check_splits(entry)
        writer = await self._take(self._space.batch_of(key.writer, key.batch))
        try:
            await writer.put(key.stage, part, checksum, runs)
        finally:
            self._give_back(writer)

    async def _take(self, topic: TopicName) -> PartWriter:
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

    def _give_back(self, writer: PartWriter) -> None:
        """It is not used by this caller any more."""
        writer.busy -= 1
        writer.used_ms = self._clock.monotonic_ms()

    async def _leave(self, topic: TopicName) -> None:
        """Leave a batch's topic, unless parts of it are coming."""
        found = self._open.get(topic)
        if found is not None and not found.busy:
            del self._open[topic]
            await found.close()

    @in_engine_words()
    async def drop(self, held: Staged, stages: Collection[str]) -> None:
        """With the last stage goes the topic, at once or when nobody uses it."""
        topic = self._space.batch_of(held.writer, held.number)
        every = set(stages) >= set(held.stages)
        if every:
            await self._leave(topic)
            if await self._delete(topic, held.last):
                return
        parts = await self._take(topic)
        try:
            for name in stages:
                await parts.drop(name)
        finally:
            self._give_back(parts)
        if every:
            left = await read_batch(self._space, held.writer, held.number)
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
                await self._leave(topic)
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
