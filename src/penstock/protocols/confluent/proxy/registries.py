"""The schema registry that the proxy asks: the server's own, or the configured one."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.registry import OtherRegistry
from penstock.codec.registered import TYPES, read, schema_of
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo
from penstock.model.subjects import (
    BAD_SCHEMA,
    CONTEXT,
    NOT_PERMITTED,
    SCHEMA_NOT_FOUND,
    Definition,
    Reference,
    SubjectVersion,
    subject_of,
    topic_of,
)
from penstock.protocols.confluent.registry.definitions import REFERENCES_MAX
from penstock.protocols.confluent.registry.passing import ask, unexpected, updates
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.confluent.registry.shapes import SchemaId, VersionOfId
from penstock.protocols.http.answers import to_json

T = TypeVar("T")
Usable = tuple[Definition, SchemaInfo, dict[str, str]]  # with the texts of its references

_KNOWN_MAX: Final = 1000
_HEADERS: Final = {"content-type": "application/vnd.schemaregistry.v1+json"}


class SchemaSource(Protocol):
    """Raises ConfluentError as the operations of the registry, and UNAVAILABLE."""

    def subject_of(self, topic: TopicName, end: str) -> str:
        """The subject of a topic's values (`-value`), or keys (`-key`)."""

    def topic_of(self, subject: str) -> TopicName | None:
        """The topic to which a subject belongs; None for one of no topic."""

    async def usable(self, subject: str, wanted: Definition) -> Usable:
        """A definition as it would be stored, and as a topic's schema."""

    async def register(self, subject: str, definition: Definition, *, forced: bool) -> SubjectVersion:
        """The version of a definition, registered if it is new. `forced`: by an administrator."""

    async def by_id(self, schema_id: int, subject: str = "") -> SubjectVersion:
        """A version that has an id, one of the named subject if it has it."""

    async def version(self, subject: str, number: str) -> SubjectVersion:
        """A version of a subject, a number or `latest`."""

    async def subjects_with(self, schema_id: int) -> set[str]:
        """The subjects that have an id."""


class OwnSchemas:
    """The server's own registry. The cluster is asked for what other processes wrote if something is not known here."""

    def __init__(self, load: Callable[[], Awaitable[Registry]]) -> None:
        self.load = load
        self.subject_of = subject_of
        self.topic_of = topic_of

    async def usable(self, subject: str, wanted: Definition) -> Usable:
        return (await self.load()).usable(subject, wanted)

    async def register(self, subject: str, definition: Definition, *, forced: bool) -> SubjectVersion:
        registry = await self.load()
        if registry.registered(subject, definition) is None:
            await registry.sync(subject)
        return await registry.register(subject, definition, forced=forced)

    async def by_id(self, schema_id: int, subject: str = "") -> SubjectVersion:
        registry, named = await self.load(), subject or None
        if not registry.has(CONTEXT, schema_id):
            await registry.sync(named)
        found = registry.by_id(CONTEXT, schema_id, named)
        if named is not None and found.subject != named:
            await registry.sync(named)
            found = registry.by_id(CONTEXT, schema_id, named)
        return found

    async def version(self, subject: str, number: str) -> SubjectVersion:
        registry = await self.load()
        await registry.sync(subject)
        return registry.version(subject, number)

    async def subjects_with(self, schema_id: int) -> set[str]:
        return {one.subject for one in (await self.load()).versions_of(CONTEXT, schema_id, deleted=True)}


class _Registered(msgspec.Struct, rename="camel"):
    """A version as registries answer it. Some say null for what others leave out."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None


class _Refused(msgspec.Struct):
    error_code: int
    message: str = ""


class OtherSchemas:
    """A configured registry. What never changes is remembered."""

    def __init__(self, other: OtherRegistry, broker: Broker) -> None:
        self._other = other
        self._broker = broker
        self.subject_of = other.subject_of
        self.topic_of = other.topic_of
        self._known: dict[Hashable, SubjectVersion] = {}

    async def usable(self, subject: str, wanted: Definition) -> Usable:
        kind = wanted.schema_type
        if kind not in TYPES:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema type {kind[:80]}")
        texts = await self._references(wanted)
        try:
            read(kind, wanted.schema, texts)
            return wanted, schema_of(kind, wanted.schema, texts), texts
        except (ValueError, PenstockError) as error:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema of type {kind}: {error}") from None

    async def _references(self, definition: Definition) -> dict[str, str]:
        """The texts of all that a definition uses, also through others, by the names they are used by."""
        found: dict[str, str] = {}
        waiting = list(definition.references)
        while waiting:
            one = waiting.pop()
            if one.name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise ConfluentError(BAD_SCHEMA, f"Invalid schema: more than {REFERENCES_MAX} references")
            used = (await self._numbered(one.subject, one.version)).definition
            found[one.name] = used.schema
            waiting += used.references
        return found

    async def register(self, subject: str, definition: Definition, *, forced: bool) -> SubjectVersion:
        place = subject, definition
        found = self._known.get(place)
        if found is None:
            found = await self._register(subject, definition, forced=forced)
            self._remember(place, found)
        return found

    async def _register(self, subject: str, definition: Definition, *, forced: bool) -> SubjectVersion:
        body = {"schema": definition.schema, "schemaType": definition.schema_type}
        path = _path(subject)
        try:
            found = await self._ask("POST", path, _Registered, body)
        except ConfluentError as error:
            if error.code.status != 404:
                raise
            if not (forced or updates(self._broker, self.topic_of(subject))):
                text = "Schema not found and schema auto updating is disabled."
                raise ConfluentError(NOT_PERMITTED, text) from None
            await self._ask("POST", f"{path}/versions", SchemaId, body)
            found = await self._ask("POST", path, _Registered, body)
        return self._version(found)

    async def by_id(self, schema_id: int, subject: str = "") -> SubjectVersion:
        place = schema_id, subject
        found = self._known.get(place)
        if found is None:
            every = await self._places(schema_id, subject)
            one = next((each for each in every if each.subject == subject), every[0])
            found = await self._numbered(one.subject, one.version)
            if subject in ("", found.subject):
                self._remember(place, found)
        return found

    async def _places(self, schema_id: int, subject: str = "") -> list[VersionOfId]:
        named = f"&subject={quote(subject, safe='')}" if subject else ""  # it may be of another context
        path = f"/schemas/ids/{schema_id}/versions?deleted=true"
        found = await self._ask("GET", path + named, list[VersionOfId])
        if not found and named:
            found = await self._ask("GET", path, list[VersionOfId])
        if not found:
            raise ConfluentError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return found

    async def _numbered(self, subject: str, number: int) -> SubjectVersion:
        """A version, which may be deleted softly."""
        place = subject, number
        found = self._known.get(place)
        if found is None:
            path = f"{_path(subject)}/versions/{number}?deleted=true"
            found = self._version(await self._ask("GET", path, _Registered))
            self._remember(place, found)
        return found

    async def version(self, subject: str, number: str) -> SubjectVersion:
        path = f"{_path(subject)}/versions/{quote(number, safe='')}"
        return self._version(await self._ask("GET", path, _Registered))

    async def subjects_with(self, schema_id: int) -> set[str]:
        return {one.subject for one in await self._places(schema_id)}

    def _version(self, found: _Registered) -> SubjectVersion:
        kind, references = found.schema_type or "AVRO", found.references or ()
        definition = Definition(found.schema, kind, references)
        return SubjectVersion(found.subject, found.version, found.id, definition)

    def _remember(self, place: Hashable, found: SubjectVersion) -> None:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[place] = found

    async def _ask(self, method: str, path: str, shape: type[T], body: Any = None) -> T:
        found = await ask(self._other, method, path, _HEADERS, None if body is None else to_json(body))
        try:
            if found.status == 200:
                return msgspec.json.decode(found.body, type=shape)
            if 400 <= found.status < 500:
                refused = msgspec.json.decode(found.body, type=_Refused)
                raise ConfluentError(ConfluentCode(found.status, refused.error_code), refused.message)
        except (msgspec.DecodeError, RecursionError):
            raise unexpected() from None
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the configured schema registry answers with status {found.status}"
        )


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"
