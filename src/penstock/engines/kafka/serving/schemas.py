"""The schemas of entries that other processes deliver: each process keeps all schemas, and may be a moment behind."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaVersion

MISSING_MAX: Final = 10_000


class KnownSchemas(Protocol):
    """What is used of the schemas of this process."""

    def version(self, topic: TopicName, number: int) -> SchemaVersion: ...
    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion: ...


class DeliveredSchemas:
    """`attached.ArrivingSchemas`. `catch_up` learns everything that processes have stored until now."""

    def __init__(self, schemas: KnownSchemas, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._schemas = schemas
        self._catch_up = catch_up
        self._missing: dict[tuple[TopicName, int], None] = {}  # versions that do not exist

    def knows(self, topic: TopicName, version: int) -> bool:
        if (topic, version) in self._missing:
            return True
        try:
            self._schemas.version(topic, version)
        except PenstockError:
            return False
        return True

    async def fetch(self, topic: TopicName, version: int) -> None:
        """As `ArrivingSchemas.fetch`. A version is stored before the entries that name it: it exists now, or never will."""
        await self._catch_up()
        try:
            await self._schemas.find_version(topic, version)
        except PenstockError as error:
            if error.kind is not ErrorKind.SCHEMA_NOT_FOUND:
                raise
            self._missing[topic, version] = None
            if len(self._missing) > MISSING_MAX:
                del self._missing[next(iter(self._missing))]
