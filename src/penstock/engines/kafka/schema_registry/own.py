"""The schemas of topics beside this server's own registry: documents, to which the registry gives ids that Confluent's framing names.

Values of other programs are opened if they begin with an id of their topic's subject. Values of ours are framed in topics whose
subject a client of the registry has used; in all others they are as they were before there was a registry (decision 0118).
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from penstock.broker.registry import RegistryRecord
from penstock.broker.settings import ClusterSettings
from penstock.broker.topic import MetaStore
from penstock.codec.proto.native import places_of, with_message
from penstock.engines.kafka.framing import Framing, UnknownSchemas, encode_indexes
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.versions import BY_ID, MESSAGES, split_message
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType, SchemaVersion
from penstock.model.subjects import CONTEXT, VALUE, context_of, subject_of
from penstock.runtime.clock import Clock

from .client import Definition, Reference
from .definitions import HELD, of_registry
from .records import KafkaRegistryRecords

log = logging.getLogger(__name__)

TOPICS_MAX: Final = 10_000  # whose framings are remembered
Place = tuple[str, int]  # a subject and a version


class _Key(msgspec.Struct):
    keytype: str
    subject: str = ""
    version: int = 0


class _Value(msgspec.Struct, rename="camel"):
    id: int
    schema: str
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None
    deleted: bool = False


class _Own(msgspec.Struct, rename="camel"):
    topic_version: int | None = None
    topic_time: int | None = None
    registered: bool = False


class _Version(msgspec.Struct, frozen=True):
    id: int
    definition: Definition
    of_topic: tuple[int | None, int | None]  # the topic's version and its time
    used: bool  # by clients of a registry


class OwnRegistrySchemas(Schemas):
    """`broker.Schemas`."""

    def __init__(
        self,
        settings: ClusterSettings,
        store: MetaStore,
        namespaces: Namespaces,
        naming: Naming,
        clock: Clock,
        bytes_max: int,
        reader: DocumentReader,
        records: KafkaRegistryRecords,
    ) -> None:
        super().__init__(store, namespaces, clock, bytes_max, reader=reader)
        self._strategy = settings.schema_registry_subjects
        self._naming = naming
        self._records = records
        self._versions_of: dict[str, dict[int, _Version]] = {}  # by subject, of the default context
        self._places: dict[int, dict[Place, None]] = {}  # by id
        self._framings: OrderedDict[TopicName, Framing] = OrderedDict()

    async def load(self) -> None:
        await super().load()
        try:
            await self._records.open(self._learn)
        except PenstockError as error:  # the registry's own requests say so, too
            log.warning("the schema registry cannot be read", extra={"reason": error.message})

    # -- the registry's records

    def _learn(self, record: RegistryRecord) -> None:
        try:
            key = msgspec.json.decode(record.key, type=_Key)
            if key.keytype != "SCHEMA" or context_of(key.subject) != CONTEXT:
                return
            self._index(key, record)
        except (msgspec.DecodeError, RecursionError) as error:
            log.debug("a record of the schema registry is not understood: %s", error)

    def _index(self, key: _Key, record: RegistryRecord) -> None:
        held = self._versions_of.setdefault(key.subject, {})
        place = key.subject, key.version
        before = held.pop(key.version, None)
        if before is not None:
            self._places[before.id].pop(place, None)
        if record.value is not None:
            found = msgspec.json.decode(record.value, type=_Value)
            own = msgspec.json.decode(record.own, type=_Own) if record.own else _Own(registered=True)
            definition = Definition(found.schema_type or "AVRO", found.schema, found.references or ())
            of_topic = own.topic_version, own.topic_time
            held[key.version] = _Version(found.id, definition, of_topic, own.registered and not found.deleted)
            self._places.setdefault(found.id, {})[place] = None
        self._framings.clear()

    def _texts(self, definition: Definition) -> dict[str, str]:
        """The texts that a schema uses, by the names they are used by."""
        found: dict[str, str] = {}
        waiting = list(definition.references)
        while waiting:
            one = waiting.pop()
            used = self._versions_of.get(one.subject, {}).get(one.version)
            if used is not None and one.name not in found:
                found[one.name] = used.definition.text
                waiting += used.definition.references
        return found

    def _schema_of(self, number: int) -> SchemaInfo | None:
        """The schema with an id; None if there is none, or it is not understood."""
        for subject, version in self._places.get(number, ()):
            definition = self._versions_of[subject][version].definition
            try:
                return of_registry(definition, self._texts(definition))
            except PenstockError as error:
                log.warning("a schema is not understood", extra={"schema": number, "reason": error.message})
                return None
        return None

    # -- framing

    def framing(self, topic: TopicName) -> Framing:
        """The framing of a topic's values."""
        base = topic.base
        found = self._framings.get(base)
        if found is None:
            if len(self._framings) >= TOPICS_MAX:
                self._framings.popitem(last=False)
            found = self._framings[base] = self._new_framing(base)
        return found

    def _new_framing(self, topic: TopicName) -> Framing:
        made = Framing(topic, self._clock, keyed=False, own=True)
        schemas = self._by_number(topic)
        for one in self._versions_named(topic):
            made.writes = made.writes or one.used
            self._know(made, schemas, one)
        return made

    def _by_number(self, topic: TopicName) -> dict[int, SchemaVersion]:
        """The schemas of a topic, also those that were deleted."""
        return {one.version: one for one in self.all(topic, deleted=True)}

    def _versions_named(self, topic: TopicName) -> Iterator[_Version]:
        """The versions of the topic's subject, by its name here and by that of the topic in Kafka."""
        for subject in dict.fromkeys((subject_of(topic), self._naming.kafka_name(topic) + VALUE)):
            yield from self._versions_of.get(subject, {}).values()

    def _know(self, framing: Framing, schemas: Mapping[int, SchemaVersion], one: _Version) -> bool:
        """Let a framing know an id; returns whether its schema is understood."""
        number, schema = one.of_topic[0], None
        if number is not None:
            found = schemas.get(number)
            if found is not None and found.timestamp == one.of_topic[1]:
                schema = found.schema
        if schema is None:
            number, schema = BY_ID + one.id, self._schema_of(one.id)
        if schema is None or number is None:
            return False
        indexes = None
        if schema.type is SchemaType.PROTOBUF_NATIVE:
            indexes = tuple(encode_indexes(place) for place in places_of(schema.data)[:MESSAGES])
        framing.know(one.id, number, indexes)
        return True

    async def learn(self, topic: TopicName) -> None:
        """All schemas are known here."""

    async def learn_ids(self, topic: TopicName, unknown: UnknownSchemas) -> None:
        """Learn the meaning of ids in front of values; never fails, and afterwards each is known or guessed."""
        try:
            await self._records.catch_up()
        except PenstockError as error:
            log.info("ids of the schema registry cannot be learned: %s", error.message)
        framing = self.framing(topic)
        for head in unknown.ids:
            number = int.from_bytes(head, "big")
            if framing.meaning(number, of_keys=False) is None and not self._know_other(
                framing, topic, number
            ):
                framing.guess_none(head)
        for head in unknown.keys:
            framing.guess_key(head)

    def _know_other(self, framing: Framing, topic: TopicName, number: int) -> bool:
        """Know an id of another subject than the topic's, as far as the setting lets values name such."""
        begin = f"{self._naming.kafka_name(topic.base)}-"
        for subject, version in self._places.get(number, ()):
            if self._strategy == "record" or (self._strategy == "topic-record" and subject.startswith(begin)):
                return self._know(framing, self._by_number(topic), self._versions_of[subject][version])
        return False

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        framing, base = self.framing(topic), split_message(number)[0]
        if base >= BY_ID:
            if not framing.knows(number):
                self._know_other(framing, topic, base - BY_ID)
        elif not framing.knows(number):
            found = self.version(topic, number)
            if found.schema.type in HELD and self._records.number_schemas is not None:
                await self._records.number_schemas()
            if not self.framing(topic).knows(number):
                self.framing(topic).leave_plain(number)
        return self.version(topic, number)

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        base, message = split_message(number)
        if base < BY_ID and not message:
            return super().version(topic, number)
        schema = self._schema_of(base - BY_ID) if base >= BY_ID else super().version(topic, base).schema
        if schema is not None and message and schema.type is SchemaType.PROTOBUF_NATIVE:
            schema = with_message(schema, message)
        if schema is None or (message and schema.type is not SchemaType.PROTOBUF_NATIVE):
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, f"{topic} has no schema version {number}")
        return SchemaVersion(number, schema)

    async def close(self) -> None:
        """Nothing is held here."""
