"""Changes of the registry: one at a time over all processes of the service."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeVar

from penstock.broker.registry import OvertakenError, RegistryRecord, RegistryRecords
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks, outcome

from .topics import TopicSubjects

TRIES: Final = 20  # to make a change beside other processes
RETRY_S: Final = 0.05  # before the second try, at random; more before each further one

T = TypeVar("T")


class Changes:
    """Makes changes over the records, which the state learns. `process` names this process in what it writes."""

    def __init__(self, records: RegistryRecords, topics: TopicSubjects | None, process: str) -> None:
        self._records = records
        self._topics = topics
        self._process = process
        self._turn = asyncio.Lock()
        self._random = Random()
        self._tasks = Tasks()

    async def sync(self, subject: str | None = None) -> None:
        """Learn what other processes wrote, and the schemas that topics, and that of a subject, have got or lost since the last time."""
        await self._records.catch_up()
        topics = self._topics
        if topics is None:
            return
        if subject is not None:
            await topics.refresh(subject)
        if topics.current:
            return
        async with self._turn:  # most often another process has written them
            records = topics.changes()
            topics.written(done=not records)
        if records:
            await self.make(_nothing)

    async def make(self, work: Callable[[], Awaitable[T]]) -> T:
        """Make a change that depends on all others before it: made again if another process was faster. It goes on when its caller
        leaves: the next change must know what became of it."""
        return await outcome(self._tasks, self._make(work), "change the schema registry")

    async def _make(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            for attempt in range(1, TRIES + 1):
                try:
                    await self._records.take()
                    await self._number_schemas()
                    return await work()
                except OvertakenError:
                    await asyncio.sleep(self._random.uniform(0, RETRY_S * attempt))
        raise PenstockError(ErrorKind.UNAVAILABLE, "other processes change the schema registry: try again")

    async def write(self, records: Sequence[RegistryRecord]) -> None:
        """Write records within a change."""
        await self._records.write(records, self._process)

    async def _number_schemas(self) -> None:
        """Give the new schemas of topics their versions and ids."""
        topics = self._topics
        while topics is not None and not topics.current:
            records, done = topics.changes(), False
            try:
                if records:
                    await self.write(records)
                done = True
            finally:
                topics.written(done=done)


async def _nothing() -> None:
    """A change of nothing but the schemas of topics."""
