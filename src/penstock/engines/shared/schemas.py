"""Schemas: which ones are understood, and the versions that a producer asked for."""

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo

SCHEMAS_MAX: Final = 1000  # schemas a producer remembers the versions of


def check_schema(schema: SchemaInfo, bytes_max: int) -> None:
    """Raise BAD_VALUE_SCHEMA unless a schema can be understood and is within bounds."""
    from penstock.codec.definition import check_definition

    size = len(schema.data) + len(schema.name.encode())
    size += sum(len(name.encode()) + len(value.encode()) for name, value in schema.properties.items())
    if size > bytes_max:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"a schema of {size} bytes; the most is {bytes_max}")
    check_definition(schema, max_schema_bytes=bytes_max)


def schema_needed(topic: TopicName) -> PenstockError:
    """The error of messages without a schema where they may not go."""
    return PenstockError(
        ErrorKind.INCOMPATIBLE_SCHEMA, f"{topic} has a schema and takes no messages without one"
    )


class AskedVersions:
    """The versions of one topic's schemas that a producer asked for: each is found or registered once, up to a bound."""

    __slots__ = ("_version_of", "_versions")

    def __init__(self, version_of: Callable[[SchemaInfo], Awaitable[int | None]]) -> None:
        self._version_of = version_of
        self._versions: dict[object, int | None] = {}

    async def get(self, schema: SchemaInfo) -> int | None:
        """As `broker.Producer.schema_version`."""
        key = (schema.type, schema.data, tuple(sorted(schema.properties.items())))
        if key not in self._versions:
            version = await self._version_of(schema)
            if len(self._versions) >= SCHEMAS_MAX:
                self._versions.clear()
            self._versions[key] = version
        return self._versions[key]
