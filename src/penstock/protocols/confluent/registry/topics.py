"""The schemas of topics as subjects, and the other way round: `orders-value` has the schemas of the topic `orders`.

A topic's schemas change without the registry, over Pulsar's protocol and REST. The registry asks for them before it answers, and
gives each new one a version and an id. A schema that is registered under a topic's subject becomes the topic's.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.registry import RegistryRecord
from penstock.codec.avro.references import with_references
from penstock.codec.json_schema.pulsar import FOREIGN, json_schema, of_json_schema
from penstock.codec.key_value import key_value_parts
from penstock.codec.proto.native import of_proto, to_proto
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType
from penstock.model.subjects import (
    BAD_SCHEMA,
    NOT_PERMITTED,
    Definition,
    Level,
    SubjectVersion,
    subject_of,
    topic_of,
)

from .subjects import Subjects, schema_record

_LEVELS: Final[Mapping[Compatibility, Level]] = {
    Compatibility.ALWAYS_COMPATIBLE: Level.NONE,
    **{strategy: Level[strategy.name] for strategy in Compatibility if strategy.name in Level.__members__},
}


class TopicSubjects:
    """Keeps the subjects of topics the same as the topics' schemas."""

    def __init__(self, broker: Broker, subjects: Subjects) -> None:
        self._broker = broker
        self._subjects = subjects
        self._changed: set[TopicName] = set()
        if not broker.schemas.partial:  # topics that lost their schemas
            self._changed.update(topic for topic in map(topic_of, subjects.names()) if topic is not None)
        self._taken: set[TopicName] = set()  # whose records are being written
        broker.schemas.follow(self._note)

    def _note(self, topic: TopicName) -> None:
        self._changed.add(topic.base)

    async def refresh(self, subject: str) -> None:
        """Ask a cluster for the schemas of a subject's topic. Raises what the cluster refuses."""
        topic = topic_of(subject) if self._broker.schemas.partial else None
        if topic is not None:
            await self._broker.schemas.refresh(topic)

    @property
    def current(self) -> bool:
        """Whether every schema of a topic has its record."""
        return not (self._changed or self._taken)

    def level(self, subject: str) -> Level | None:
        """The level that the strategy of a topic's namespace is; None unless it was set."""
        topic = topic_of(subject)
        found = None if topic is None else self._broker.namespaces.find(topic.namespace_name)
        return None if found is None else _LEVELS.get(found.schema_compatibility)

    def changes(self) -> list[RegistryRecord]:
        """The records that make the subjects of topics what the topics' schemas are now. Call `written` when they are, or if they
        cannot be."""
        self._taken |= self._changed
        self._changed.clear()
        ids = _Ids(self._subjects)
        return [record for topic in sorted(self._taken) for record in self._changes_of(topic, ids)]

    def written(self, *, done: bool) -> None:
        """The records were written, or (not `done`) are to be made again."""
        if not done:
            self._changed |= self._taken
        self._taken.clear()

    def _changes_of(self, topic: TopicName, ids: "_Ids") -> Iterator[RegistryRecord]:
        live = {(one.version, one.timestamp): one for one in self._broker.schemas.all(topic)}
        subject = subject_of(topic)
        known = list(self._subjects.versions(subject, deleted=True))
        for one in known:
            if not one.deleted and one.topic_version is not None and one.of_topic not in live:
                yield schema_record(msgspec.structs.replace(one, deleted=True))
        last = max((one.version for one in known), default=0)
        taken = self._subjects.of_topic(subject)
        apart = {one.definition: one for one in known if not one.deleted and one.topic_version is None}
        for (number, at), version in sorted(live.items()):
            definition = None if (number, at) in taken else _registered(version.schema)
            if definition is None:
                continue
            if definition in apart:  # it was registered before the topic had it
                same = apart.pop(definition)
                yield schema_record(msgspec.structs.replace(same, topic_version=number, topic_time=at))
                continue
            last += 1
            made = SubjectVersion(subject, last, ids.of(definition), definition)
            yield schema_record(msgspec.structs.replace(made, topic_version=number, topic_time=at))

    async def store(
        self, subject: str, definition: Definition, references: Mapping[str, str], *, forced: bool
    ) -> tuple[int | None, int | None]:
        """Make a definition the next schema of its subject's topic; returns its version and time there, None if the subject is of no
        topic, or of one whose schema is of keys and values. `forced`: by an administrator. Raises ConfluentError."""
        topic = topic_of(subject)
        if topic is None:
            return None, None
        latest = self._broker.schemas.latest(topic)
        if latest is not None and latest.schema.type is SchemaType.KEY_VALUE:
            return None, None
        try:
            schema = topic_schema(definition, references)
            self._broker.namespaces.check(topic.namespace_name)
            schemas = self._broker.schemas
            number = await schemas.get_or_create(topic, schema, forced=forced, checked=True)
            return (None, None) if number is None else (number, schemas.version(topic, number).timestamp)
        except PenstockError as error:
            if error.kind is ErrorKind.TOPIC_NOT_FOUND:  # a cluster keeps no schema for it yet
                return None, None
            if error.kind is ErrorKind.INCOMPATIBLE_SCHEMA:  # producers may register none
                raise ConfluentError(NOT_PERMITTED, error.message) from None
            if error.kind in (ErrorKind.BAD_VALUE_SCHEMA, ErrorKind.NAMESPACE_NOT_FOUND):
                raise ConfluentError(BAD_SCHEMA, f"Invalid schema: {error.message}") from None
            raise
        except ValueError as error:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema: {error}") from None

    async def delete(self, subject: str) -> None:
        """Delete the schema of a subject's topic, whose last version was deleted."""
        topic = topic_of(subject)
        if topic is not None and self._broker.schemas.latest(topic) is not None:
            await self._broker.schemas.delete(topic)


class _Ids:
    """Ids for several new schemas, which are written together."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._next = subjects.next_id(".")
        self._given: dict[Definition, int] = {}

    def of(self, definition: Definition) -> int:
        found = self._subjects.id_of(".", definition) or self._given.get(definition)
        if found is None:
            found = self._given[definition] = self._next
            self._next += 1
        return found


def _registered(schema: SchemaInfo) -> Definition | None:
    """As `_definition`; None for a stored schema that cannot be read, which must not hold up the others."""
    try:
        return _definition(schema)
    except (ValueError, LookupError, TypeError, RecursionError, PenstockError):
        return None


def _definition(schema: SchemaInfo) -> Definition | None:
    """A topic's schema as a registry has it; None for a type that no registry has, and for Protobuf that imports other files."""
    if schema.type is SchemaType.KEY_VALUE:
        _, schema, _ = key_value_parts(schema)
    if schema.type is SchemaType.AVRO:
        return Definition(msgspec.json.encode(msgspec.json.decode(schema.data)).decode())
    if schema.type is SchemaType.JSON and FOREIGN in schema.properties:
        return Definition(schema.properties[FOREIGN], "JSON")
    if schema.type is SchemaType.JSON:
        return Definition(json_schema(schema.data.decode()), "JSON")
    if schema.type is SchemaType.PROTOBUF_NATIVE:
        try:
            files = to_proto(schema.data).files
        except ValueError:  # an edition
            return None
        return Definition(files[0].text, "PROTOBUF") if len(files) == 1 else None
    return None


def topic_schema(definition: Definition, references: Mapping[str, str]) -> SchemaInfo:
    """A registry's schema as a topic has it. Raises ValueError, PenstockError."""
    match definition.schema_type:
        case "AVRO":
            return SchemaInfo(SchemaType.AVRO, with_references(definition.schema, references).encode())
        case "JSON":
            return of_json_schema(definition.schema)
        case _:
            return of_proto(definition.schema, references)
