"""Registered schemas as keys and values are written and read by them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.codec.avro.tagged import untagged
from penstock.codec.avro.types import Type
from penstock.codec.codec import Codec
from penstock.codec.definition import avro_type
from penstock.codec.descriptors import native_message
from penstock.codec.json_schema.document import JsonSchemaError
from penstock.codec.json_schema.pulsar import full_name
from penstock.codec.lookup import codec_for
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo
from penstock.model.subjects import (
    CONTEXT,
    HEAD_BYTES,
    INCOMPATIBLE,
    MAGIC,
    Definition,
    SubjectVersion,
    subject_of,
)
from penstock.protocols.confluent.registry.registry import Registry

from .registries import OtherSchemas, OwnSchemas, SchemaSource

KEY: Final = "-key"  # the end of the subject of a topic's keys

INVALID: Final = ConfluentCode(422, 42205)  # a schema, or data that does not fit one
UNSERIALIZED: Final = ConfluentCode(422, 42207)
UNREGISTERED: Final = ConfluentCode(408, 40801)

_KNOWN_MAX: Final = 1000  # an id keeps its meaning


class ContentSchema:
    """A schema of keys or values. `version` is None until it is registered."""

    def __init__(
        self,
        subject: str,
        definition: Definition,
        info: SchemaInfo,
        references: dict[str, str],
        version: SubjectVersion | None = None,
    ) -> None:
        """Raises PenstockError for a schema that has no codec."""
        self.subject = subject
        self.definition = definition
        self.version = version
        self._references = references
        self._info = info
        self._codec: Codec = codec_for(info)
        self._avro: Type | None = avro_type(info) if definition.schema_type == "AVRO" else None

    @property
    def record(self) -> str:
        """The name of its record, by which some naming strategies choose subjects; empty if it has none."""
        if self.definition.schema_type == "PROTOBUF":
            return native_message(self._info).full_name
        found = msgspec.json.decode(self.definition.schema)
        if not isinstance(found, dict):
            return ""
        if self.definition.schema_type == "JSON":
            return str(found.get("title", ""))
        return full_name(str(found.get("name", "")), str(found.get("namespace") or ""))

    def encode(self, data: Any) -> bytes:
        """The bytes of a value, without framing. Raises ConfluentError for data that does not fit."""
        try:
            if self._avro is not None:
                return self._codec.encode(untagged(self._avro, data))
            if self.definition.schema_type == "JSON":
                self._check(data)
            return self._codec.encode(data)
        except (PenstockError, RecursionError) as error:
            detail = getattr(error, "message", "nested too deeply")
            raise ConfluentError(INVALID, "Object does not fit to stored schema", detail) from None

    def _check(self, data: Any) -> None:
        from penstock.codec.json_schema.values import misfit  # the import takes 0.1 s

        try:
            why = misfit(self.definition.schema, self._references, data)
        except JsonSchemaError as error:
            raise ConfluentError(INVALID, f"Invalid schema: {error}") from None
        if why:
            raise ConfluentError(INVALID, why)

    def framed(self, payload: bytes) -> bytes:
        """A payload behind the schema's id, as the registry's serializers write it."""
        assert self.version is not None, "it is registered"
        indexes = bytes(self.prefix - HEAD_BYTES)  # of Protobuf: the file's first message
        return MAGIC + self.version.id.to_bytes(4, "big") + indexes + payload

    @property
    def prefix(self) -> int:
        """How many bytes stand before a payload."""
        return HEAD_BYTES + (self.definition.schema_type == "PROTOBUF")

    def decode(self, framed: bytes) -> Any:
        """The value behind an id. Raises PenstockError."""
        if framed[HEAD_BYTES : self.prefix].strip(b"\0"):
            raise ValueError("a message that is not the first of its file")
        return self._codec.decode(framed[self.prefix :])


class ProxySchemas:
    """The registry's schemas. `load` gives the server's own registry; raises NOT_SUPPORTED."""

    def __init__(self, broker: Broker, load: Callable[[], Awaitable[Registry]]) -> None:
        other = broker.other_registry
        self._source: SchemaSource = OwnSchemas(load) if other is None else OtherSchemas(other, broker)
        self._load = load
        self._own = other is None
        self._formats = broker.record_formats
        self.subject_of = self._source.subject_of
        self.topic_of = self._source.topic_of
        self.subjects_with = self._source.subjects_with
        self._known: dict[int, ContentSchema] = {}
        self._revision = -1  # of the server's own registry, at which the following hold
        self._by_id: dict[tuple[str, int], ContentSchema | None] = {}
        self._by_version: dict[tuple[str, int], ContentSchema | None] = {}

    async def named(self, subject: str, kind: str, text: str) -> ContentSchema:
        """The schema of a text, which is not registered yet. Raises ConfluentError, UNAVAILABLE."""
        try:
            return await self._content(subject, Definition(text, kind))
        except (ConfluentError, PenstockError) as error:
            raise_retriable(error)
            raise ConfluentError(INVALID, f"Invalid schema. format = {kind}: {error.message}") from None

    async def register(self, schema: ContentSchema, *, forced: bool) -> None:
        """Look a schema up in its subject, and register it if it is new. Raises ConfluentError, UNAVAILABLE."""
        subject, kind = schema.subject, schema.definition.schema_type
        try:
            schema.version = await self._source.register(subject, schema.definition, forced=forced)
        except ConfluentError as error:
            if error.code.status == INCOMPATIBLE.status:
                text = f"Error when registering schema. format = {kind}, subject = {subject}: {error.message}"
                raise ConfluentError(UNREGISTERED, text) from None
            text = f"Error serializing message. Error when registering schema. {error.message}"
            raise ConfluentError(UNSERIALIZED, text) from None

    async def registered(self, subject: str, kind: str, schema_id: int) -> ContentSchema:
        """The schema of an id that was registered under a subject. Raises ConfluentError, UNAVAILABLE."""
        try:
            version = await self._source.by_id(schema_id, subject)
        except ConfluentError as error:
            text = f"Error serializing message. Error when fetching schema by id. schemaId = {schema_id}: {error.message}"
            raise ConfluentError(UNSERIALIZED, text) from None
        if version.subject != subject:
            raise ConfluentError(
                INVALID,
                f"Invalid schema. format = {kind}, schema_id = {schema_id} is not registered under the subject {subject}",
            )
        return await self._of_version(version)

    async def numbered(self, subject: str, version: str) -> ContentSchema:
        """The schema of a version of a subject, a number or `latest`. Raises ConfluentError as `Registry.version`, UNAVAILABLE."""
        return await self._of_version(await self._source.version(subject, version))

    async def by_id(self, schema_id: int) -> ContentSchema | None:
        """The schema that contents with an id before them were written by; None if there is none with this id. Raises UNAVAILABLE."""
        known = self._known.get(schema_id)
        if known is None:
            try:
                known = await self._of_version(await self._source.by_id(schema_id))
            except (ConfluentError, PenstockError) as error:
                raise_retriable(error)
                return None
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[schema_id] = known
        return known

    def version_in(self, topic: TopicName, version: SubjectVersion) -> int | None:
        """The version by which a topic stores values of a schema, without framing; None if it has no such version."""
        if self._own:
            if version.subject != subject_of(topic) or version.topic_version is None:
                return None
            if self._formats is None:
                return version.topic_version
        return None if self._formats is None else self._formats.version_of(version.id)

    async def _of_version(self, version: SubjectVersion) -> ContentSchema:
        return await self._content(version.subject, version.definition, version)

    async def _content(
        self, subject: str, definition: Definition, version: SubjectVersion | None = None
    ) -> ContentSchema:
        """Raises ConfluentError, PenstockError."""
        return ContentSchema(subject, *await self._source.usable(subject, definition), version)

    # -- values that name their schemas

    async def unframed(
        self, topic: TopicName, values: Sequence[bytes | None]
    ) -> list[tuple[int | None, bytes | None]]:
        """Values that a serializer wrote by schemas of the topic as the topic stores them: the topic's version and the payload. No
        version and the value as it is for any other."""
        ids = [None if value is None else id_of(value) for value in values]
        if not any(one is not None for one in ids):
            return [(None, value) for value in values]
        registry = await self._own_registry()
        if registry is None:
            return [(None, value) for value in values]
        subject = subject_of(topic)
        self._renew(registry)
        if any(one is not None and self._of_subject(registry, subject, one) is None for one in ids):
            await registry.sync(subject)  # once for all of them
            self._renew(registry)
        found: list[tuple[int | None, bytes | None]] = []
        for one, value in zip(ids, values, strict=True):
            schema = None if one is None else self._of_subject(registry, subject, one)
            found.append(
                (None, value) if schema is None or value is None else self._opened(topic, schema, value)
            )
        return found

    def _opened(self, topic: TopicName, schema: ContentSchema, value: bytes) -> tuple[int | None, bytes]:
        """The topic's version and the payload of a value; no version and the value if it only looks like one of the schema."""
        try:
            schema.decode(value)
        except (PenstockError, ValueError, RecursionError):
            return None, value
        assert schema.version is not None, "it is registered"
        return self.version_in(topic, schema.version), value[schema.prefix :]

    def _of_subject(self, registry: Registry, subject: str, schema_id: int) -> ContentSchema | None:
        """The schema with an id, if it is a version of the subject and of its topic."""
        place = subject, schema_id
        if place not in self._by_id:
            self._by_id[place] = _of_subject(registry, *place)
        return self._by_id[place]

    async def of_version(self, topic: TopicName, version: int) -> ContentSchema | None:
        """The schema of a version of a topic, by which a serializer frames its values; None if the registry does not have the version."""
        registry = await self._own_registry()
        if registry is None:
            return None
        self._renew(registry)
        place = subject_of(topic), version
        if place not in self._by_version:
            if registry.of_topic(*place) is None:
                await registry.sync(place[0])
                self._renew(registry)
            found = registry.of_topic(*place)
            self._by_version[place] = None if found is None else _usable(registry, found)
        return self._by_version[place]

    async def _own_registry(self) -> Registry | None:
        """The server's own registry, if it has one that it may read."""
        try:
            return await self._load() if self._own else None
        except PenstockError as error:
            raise_retriable(error)
            return None

    def _renew(self, registry: Registry) -> None:
        """Forget what is known of an older state of the registry."""
        if registry.revision != self._revision or len(self._by_id) + len(self._by_version) > _KNOWN_MAX:
            self._revision = registry.revision
            self._by_id.clear()
            self._by_version.clear()


def _of_subject(registry: Registry, subject: str, schema_id: int) -> ContentSchema | None:
    """The schema with an id, if it is a version of the subject and of its topic."""
    try:
        version = registry.by_id(CONTEXT, schema_id, subject)
    except ConfluentError:
        return None
    usable = version.subject == subject and version.topic_version is not None
    return _usable(registry, version) if usable else None


def _usable(registry: Registry, version: SubjectVersion) -> ContentSchema | None:
    try:
        usable = registry.usable(version.subject, version.definition)
        return ContentSchema(version.subject, *usable, version)
    except (ConfluentError, PenstockError):
        return None


def raise_retriable(error: Exception) -> None:
    """Raise an error again that may pass, as a cluster or a registry does not answer."""
    if isinstance(error, PenstockError) and error.retriable:
        raise error


def id_of(content: bytes) -> int | None:
    """The id of the schema before a content; None if there is none."""
    if len(content) >= HEAD_BYTES and content.startswith(MAGIC):
        return int.from_bytes(content[1:HEAD_BYTES], "big")
    return None
