"""Entries that wait until the schemas they name are known: what is delivered can be read at once."""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.client.entries.arrived import Arrived
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .owner import ArrivingSchemas

LEARN_AGAIN_MS: Final = 500  # after a schema could not be fetched


class Unread:
    """Of one topic or partition, in order. `arrived` gets those whose schema was fetched, as `sift` does."""

    def __init__(
        self,
        name: TopicName,
        schemas: ArrivingSchemas,
        clock: Clock,
        tasks: Tasks,
        arrived: Callable[[list[Arrived]], None],
    ) -> None:
        self._name = name.base
        self._schemas = schemas
        self._clock = clock
        self._tasks = tasks
        self._arrived = arrived
        self._entries: deque[Arrived] = deque()
        self._learning = False

    @property
    def messages(self) -> int:
        """How many messages wait."""
        return sum(one.mask.bit_count() for one in self._entries) if self._entries else 0

    def sift(self, entries: list[Arrived]) -> list[Arrived]:
        """The entries that can be read now: up to the first that cannot, which waits with all after it."""
        if self._entries:
            self._entries += entries
            return []
        name, schemas = self._name, self._schemas
        for at, one in enumerate(entries):
            version = one.schema_version
            if version is not None and not schemas.knows(name, version):
                self._entries += entries[at:]
                self._learn(version)
                return entries[:at]
        return entries

    def clear(self) -> None:
        """None of them is awaited any more."""
        self._entries.clear()

    def _learn(self, version: int) -> None:
        if not self._learning:
            self._learning = True
            self._tasks.spawn(self._fetch(version), f"fetch a schema of {self._name}")

    async def _fetch(self, version: int) -> None:
        try:
            await self._schemas.fetch(self._name, version)
        except PenstockError:
            self._clock.call_later(LEARN_AGAIN_MS, self._learned)
            return
        self._learned()

    def _learned(self) -> None:
        self._learning = False
        waiting, self._entries = list(self._entries), deque()
        if waiting:
            self._arrived(waiting)
