"""The schema registry: versions per topic, and which schema may come next (PIP-43; docs/schemas.md)."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from penstock.broker.topic import MetaStore
from penstock.engines.shared.documents import DocumentReader
from penstock.engines.shared.schemas import check_schema, schema_needed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import NamespacePolicies
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType, SchemaVersion
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .namespaces import Namespaces

KIND: Final = "schema"
DEFAULT_STRATEGY = Compatibility.FULL


class _Document(msgspec.Struct, omit_defaults=True):
    type: int
    timestamp: int
    data: str = ""
    name: str = ""
    properties: dict[str, str] = {}
    deleted: bool = False


def schema_id(topic: TopicName) -> str:
    """All partitions of a topic share the schemas of the topic."""
    base = topic.base
    return f"{base.tenant}/{base.namespace}/{base.local}"


def stored_number(key: str) -> int:
    """The number of the version that is stored under a key. Raises ValueError."""
    return int(key.rpartition("\0")[2])


def stored_version(number: int, document: bytes) -> SchemaVersion:
    """The schema of a stored document, as version `number`. Raises msgspec.DecodeError, ValueError."""
    found = msgspec.json.decode(document, type=_Document)
    info = SchemaInfo(SchemaType(found.type), b64decode(found.data), found.name, found.properties)
    return SchemaVersion(number, info, found.timestamp, found.deleted)


class Schemas:
    """`broker.Schemas`: every version of every topic's schema. Versions count from 0, one for each schema or deletion."""

    partial = False

    def __init__(
        self,
        store: MetaStore,
        namespaces: Namespaces,
        clock: Clock,
        bytes_max: int,
        *,
        first: int = 0,
        reader: DocumentReader | None = None,
    ) -> None:
        self._store = store
        self._reader = reader or DocumentReader()
        self._namespaces = namespaces
        self._clock = clock
        self._bytes_max = bytes_max
        self._first = first  # what is added to the numbers that are stored
        self._versions: dict[str, list[SchemaVersion]] = {}
        self._unread: dict[str, set[int]] = {}  # numbers of stored versions that cannot be read
        self.changes = 0  # of any topic
        self._followers: list[Callable[[TopicName], None]] = []
        self._locks: Locks[str] = Locks()

    async def load(self) -> None:
        """Read what is stored."""
        self._reader.read_all(KIND, await self._store.load_meta(KIND), self.learned)

    def learned(self, key: str, document: bytes | None) -> None:
        """Another process has stored a schema version under this key, or deleted it (None). The number of a version that
        cannot be read stays taken."""
        topic, number = key.rpartition("\0")[0], self._first + stored_number(key)
        versions = [one for one in self._versions.get(topic, ()) if one.version != number]
        unread = self._unread.pop(topic, set()) - {number}
        if document is not None:
            self._unread[topic] = unread | {number}  # until it is read
            versions.append(stored_version(number, document))
            versions.sort(key=lambda one: one.version)
        self._unread.pop(topic, None)
        if unread:
            self._unread[topic] = unread
        self._versions[topic] = versions
        if not versions:
            del self._versions[topic]
        self.changes += 1
        self._tell(topic, self._followers)

    # -- reading

    def follow(self, changed: Callable[[TopicName], None]) -> None:
        self._followers.append(changed)
        for key in self._versions:
            self._tell(key, (changed,))

    def _tell(self, key: str, followers: Iterable[Callable[[TopicName], None]]) -> None:
        topic = TopicName.parse_known(key) if followers else None
        if topic is not None:
            for changed in followers:
                changed(topic)

    async def refresh(self, topic: TopicName) -> None:
        """All schemas are known here."""

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        versions = self._versions.get(schema_id(topic))
        return None if not versions or versions[-1].deleted else versions[-1]

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        return self._numbered(topic, number, self.all(topic, deleted=True))

    async def key_prefix(self, topic: TopicName, number: int) -> bytes:
        return b""

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        return self.version(topic, number)

    def _numbered(self, topic: TopicName, number: int, among: list[SchemaVersion]) -> SchemaVersion:
        for found in among:
            if found.version == number:
                return found
        unread = number in self._unread.get(schema_id(topic), ())
        why = ": its stored document cannot be read" if unread else ""
        raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, f"{topic} has no schema version {number}{why}")

    def get(self, topic: TopicName, number: int | None = None) -> SchemaVersion:
        if number is not None:
            return self._numbered(topic, number, self._live(topic))
        versions = self._versions.get(schema_id(topic))
        if not versions:
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema not found")
        if versions[-1].deleted:
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema is deleted")
        return versions[-1]

    def all(self, topic: TopicName, *, deleted: bool = False) -> list[SchemaVersion]:
        if not deleted:
            return self._live(topic)
        return [v for v in self._versions.get(schema_id(topic), ()) if not v.deleted]

    def _live(self, topic: TopicName) -> list[SchemaVersion]:
        """The versions since the last deletion: what a new schema is checked against."""
        live: list[SchemaVersion] = []
        for version in self._versions.get(schema_id(topic), ()):
            if version.deleted:
                live.clear()
            else:
                live.append(version)
        return live

    def find(self, topic: TopicName, schema: SchemaInfo) -> int | None:
        from penstock.codec.definition import same

        for version in reversed(self._live(topic)):
            if version.schema == schema or same(version.schema, schema):
                return version.version
        return None

    def strategy(self, topic: TopicName) -> Compatibility:
        chosen = self._policies(topic).schema_compatibility
        return DEFAULT_STRATEGY if chosen is Compatibility.UNDEFINED else chosen

    def _policies(self, topic: TopicName) -> NamespacePolicies:
        return self._namespaces.find(topic.namespace_name) or NamespacePolicies()

    async def objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        return self._objection(topic, schema)

    def _objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        from penstock.codec.compatibility import check

        existing = [v.schema for v in self._live(topic)]
        return check(schema, existing, self.strategy(topic)) if existing else None

    def check_next(
        self, topic: TopicName, schema: SchemaInfo | None, *, forced: bool = False, checked: bool = False
    ) -> None:
        """As `broker.Schemas.check_next`; `forced` and `checked` as `get_or_create`."""
        if schema is None:
            if self._policies(topic).schema_validation_enforced and self.latest(topic) is not None:
                raise schema_needed(topic)
            return
        if not (forced or self._policies(topic).schema_auto_update):
            raise PenstockError(
                ErrorKind.INCOMPATIBLE_SCHEMA, "Schema not found and schema auto updating is disabled."
            )
        objection = None if checked else self._objection(topic, schema)
        if objection is not None:
            raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, objection)

    def check(self, topic: TopicName, schema: SchemaInfo) -> None:
        check_schema(schema, self._bytes_max)

    async def check_consumer(self, topic: TopicName, schema: SchemaInfo, *, used: bool) -> None:
        if schema.type in (SchemaType.NONE, SchemaType.BYTES, SchemaType.AUTO_CONSUME):
            return
        newest = self.latest(topic)
        if newest is None:
            if used:
                raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, "Topic does not have schema to check")
            await self.get_or_create(topic, schema)
            return
        self.check(topic, schema)
        if self.find(topic, schema) is not None:
            return
        from penstock.codec.compatibility import cannot_read

        if self.strategy(topic) is Compatibility.ALWAYS_COMPATIBLE:
            return
        why = cannot_read(reader=schema, writer=newest.schema)
        if why is not None:
            raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, f"the consumer cannot read the topic: {why}")

    # -- writing

    async def get_or_create(
        self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False, checked: bool = False
    ) -> int | None:
        if schema.type in (SchemaType.NONE, SchemaType.BYTES):
            self.check_next(topic, None)
            return None
        self.check(topic, schema)
        key = schema_id(topic)
        async with self._locks.hold(key):
            while True:
                found = self.find(topic, schema)
                if found is not None:
                    return found
                self.check_next(topic, schema, forced=forced, checked=checked)
                try:
                    return await self._put(key, schema, deleted=False)
                except PenstockError as error:
                    # another process took the number, and is known now
                    if error.kind is not ErrorKind.ALREADY_EXISTS:
                        raise

    async def _put(self, key: str, schema: SchemaInfo, *, deleted: bool) -> int:
        taken = [one.version for one in self._versions.get(key, ())[-1:]] + list(self._unread.get(key, ()))
        number = max(taken, default=self._first - 1) + 1
        now = self._clock.now_ms()
        content = msgspec.json.encode(
            _Document(
                int(schema.type),
                now,
                b64encode(schema.data).decode(),
                schema.name,
                schema.properties,
                deleted,
            )
        )
        stored = self._row(key, number)
        await self._store.save_meta([(KIND, stored, content)])
        self.learned(stored, content)
        return number

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        key = schema_id(topic)
        async with self._locks.hold(key):
            newest = self.get(topic)
            if not force:
                return await self._put(key, SchemaInfo(SchemaType.NONE), deleted=True)
            await self.forget(topic)
            return newest.version + 1

    async def forget(self, topic: TopicName) -> None:
        """Forget everything: the topic is deleted."""
        key = schema_id(topic)
        numbers = [one.version for one in self._versions.pop(key, ())]
        numbers += sorted(self._unread.pop(key, ()))
        self.changes += 1
        self._tell(key, self._followers)
        if numbers:
            await self._store.save_meta([(KIND, self._row(key, number), None) for number in numbers])

    def _row(self, key: str, number: int) -> str:
        return f"{key}\0{number - self._first:010}"
