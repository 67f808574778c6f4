"""What producers of every engine have in common: how they end, and the schemas that they asked for."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import ProducerOptions
from penstock.model.schema import SchemaInfo

SCHEMAS_MAX: Final = 1000  # whose versions a producer remembers


class OpenProducer(ABC):
    """Of `broker.Producer`: from its opening to its end. `version_of` finds or registers a schema of its topic."""

    def __init__(
        self,
        options: ProducerOptions,
        connected_ms: int,
        version_of: Callable[[SchemaInfo], Awaitable[int | None]],
    ) -> None:
        self.options = options
        self.connected_ms = connected_ms
        self.published = 0
        self.owner: str | None = None  # the role it publishes for; None: of several, or authentication is off
        self.proxy: str | None = None  # the role that made it for its owner; None: the owner itself
        self.closed = False
        self.close_reason: PenstockError | None = None
        self.ousted: Callable[[PenstockError], None] | None = None  # called when it is closed by others
        self._version_of = version_of
        self._versions: dict[object, int | None] = {}

    def check(self) -> None:
        """Raise why others closed it: one that was fenced off publishes nothing more."""
        if self.close_reason is not None:
            raise self.close_reason

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave the topic; harmless when repeated. `reason`: it was not the producer's own wish."""
        if self.closed:
            return
        self.closed, self.close_reason = True, reason
        self._leave()
        ousted, self.ousted = self.ousted, None  # it knows this object: no circle is left to the collector
        if reason is not None and ousted is not None:
            ousted(reason)

    @abstractmethod
    def _leave(self) -> None:
        """Leave the topic."""

    async def schema_version(self, schema: SchemaInfo) -> int | None:
        """The version of a schema on this topic, registered when it is new (PIP-43); None for bytes.

        Answers are remembered, up to a bound. Raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA.
        """
        key = (schema.type, schema.data, tuple(sorted(schema.properties.items())))
        if key not in self._versions:
            version = await self._version_of(schema)
            if len(self._versions) >= SCHEMAS_MAX:
                self._versions.clear()
            self._versions[key] = version
        return self._versions[key]


def internal_error() -> PenstockError:
    """The error of what failed for a reason that is not the caller's."""
    return PenstockError(ErrorKind.INTERNAL, "the message could not be published")
