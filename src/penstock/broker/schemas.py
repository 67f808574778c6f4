"""The schemas of topics, by version (PIP-43). Versions count from 0, one for each schema or deletion."""

from collections.abc import Callable
from typing import Protocol

from penstock.model.names import TopicName
from penstock.model.schema import Compatibility, SchemaInfo, SchemaVersion


class Schemas(Protocol):
    """The schemas of topics by version: which may follow which, and which clients may publish and consume with them."""

    @property
    def changes(self) -> int:
        """How often the schemas of any topic changed: while it stays, `latest` answers the same for every topic."""

    def follow(self, changed: Callable[[TopicName], None]) -> None:
        """Have `changed` called for every topic whose schemas are known here, and for each whose schemas change later."""

    @property
    def partial(self) -> bool:
        """Whether a cluster keeps the schemas, so that those of a topic are known once it was asked for them."""

    async def refresh(self, topic: TopicName) -> None:
        """Ask the cluster for a topic's newest schema and those before it. Raises what it refuses."""

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        """The newest schema of a topic; None if there is none, or it was deleted."""

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        """One version, also of before a deletion, to read stored messages by; raises SCHEMA_NOT_FOUND."""

    def get(self, topic: TopicName, number: int | None = None) -> SchemaVersion:
        """One version, or the newest; raises SCHEMA_NOT_FOUND, as for every version before a deletion."""

    def all(self, topic: TopicName, *, deleted: bool = False) -> list[SchemaVersion]:
        """Every version, oldest first; `deleted`: also those before a deletion, which stored messages may name."""

    def find(self, topic: TopicName, schema: SchemaInfo) -> int | None:
        """The version of an equal schema; raises BAD_VALUE_SCHEMA for one that cannot be."""

    async def get_or_create(
        self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False, checked: bool = False
    ) -> int | None:
        """The version of `schema`, registered when it is new and may follow; None for NONE and BYTES.

        `forced` is an administrator's: auto update may be off. `checked`: the caller has checked that it may follow, which
        counts unless a cluster decides. Raises BAD_VALUE_SCHEMA, INCOMPATIBLE_SCHEMA.
        """

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Delete a topic's schema: a new version says so. `force` removes every version. Raises SCHEMA_NOT_FOUND."""

    async def key_prefix(self, topic: TopicName, number: int) -> bytes:
        """The bytes that the log stores before a key with this version of a key/value schema; raises SCHEMA_NOT_FOUND."""

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        """As `version`; a cluster is asked for one that is not known yet."""

    def strategy(self, topic: TopicName) -> Compatibility:
        """The strategy that counts for a topic: its namespace's, or the default."""

    async def objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        """Why `schema` may not follow those of the topic; None when it may."""

    def check(self, topic: TopicName, schema: SchemaInfo) -> None:
        """Raise BAD_VALUE_SCHEMA unless a schema can be understood and is within bounds."""

    def check_next(self, topic: TopicName, schema: SchemaInfo | None) -> None:
        """Raise INCOMPATIBLE_SCHEMA unless `schema`, which is new, may be registered by a producer; None: unless messages without
        a schema may be published."""

    async def check_consumer(self, topic: TopicName, schema: SchemaInfo, *, used: bool) -> None:
        """Raise INCOMPATIBLE_SCHEMA unless a consumer with `schema` can read the topic (docs/schemas.md).

        If the topic is not `used` yet, the consumer's schema becomes its first.
        """
