"""The subjects of a topic, and what is known of its schemas."""

from collections.abc import Callable
from typing import Final, Literal

from penstock.codec.definition import same
from penstock.codec.descriptors import native_message
from penstock.codec.key_value import key_value_parts, key_value_schema
from penstock.codec.proto.native import places_of, with_message, with_root
from penstock.engines.kafka.framing import Framing, encode_indexes
from penstock.engines.kafka.versions import BY_ID, MESSAGES, PAIR, pair, split_message, split_pair
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import (
    BYTES_SCHEMA,
    Compatibility,
    KeyValueEncoding,
    SchemaInfo,
    SchemaType,
    SchemaVersion,
)
from penstock.runtime.clock import Clock

from .definitions import HELD, Outgoing, same_file

KEYS: Final = frozenset((SchemaType.AVRO, SchemaType.JSON))  # Protobuf's may be any message of a file
VERSIONS_MAX: Final = 10_000  # of a topic that are remembered
Strategy = Literal["topic", "record", "topic-record"]
Part = Literal["key", "value"]


class SubjectNames:
    """Which subject a schema is registered in (Confluent's naming strategies). `kafka_name`: of a topic."""

    def __init__(self, strategy: Strategy, kafka_name: Callable[[TopicName], str]) -> None:
        self.by_topic = strategy == "topic"
        self._strategy = strategy
        self._kafka_name = kafka_name

    def of_topic(self, topic: TopicName, part: Part) -> str:
        """The subject of a topic by the strategy of topics; by the others one that may be, whose context counts."""
        return f"{self._kafka_name(topic)}-{part}"

    def of_schema(self, topic: TopicName, schema: Outgoing, part: Part) -> str:
        """Where a schema is registered; raises BAD_VALUE_SCHEMA for one without a name, where that decides."""
        if self.by_topic:
            return self.of_topic(topic, part)
        if not schema.record:
            raise PenstockError(
                ErrorKind.BAD_VALUE_SCHEMA,
                f"engine.schema_registry_subjects is {self._strategy}, and the schema has no record's name",
            )
        return schema.record if self._strategy == "record" else f"{self._kafka_name(topic)}-{schema.record}"


class TopicSchemas:
    """What was learned of a topic's schemas in the registry."""

    def __init__(self, topic: TopicName, names: SubjectNames, clock: Clock) -> None:
        self.topic = topic
        self.value = names.of_topic(topic, "value")
        self.key = names.of_topic(topic, "key")
        self.learned = False
        self.strategy = Compatibility.UNDEFINED
        self.framing = Framing(topic, clock, keyed=None if names.by_topic else False)
        self.newest: SchemaVersion | None = None
        self.live: list[int] = []  # versions that are not deleted
        self.live_keys: list[int] = []
        self.values: dict[int, SchemaVersion] = {}  # also those that were deleted, and those by id
        self.keys: dict[int, SchemaInfo] = {}
        self.odd: set[tuple[Part, int]] = set()  # versions that are not understood
        self._made: dict[int, SchemaVersion] = {}  # messages of a file, pairs, and versions by their ids

    def add(self, number: int, version: int, schema: SchemaInfo) -> None:
        """A value's schema with this id."""
        if version not in self.values:
            if len(self.values) >= VERSIONS_MAX:
                self.values = {one: self.values[one] for one in self.live if one in self.values}
                self._made.clear()
            self.values[version] = SchemaVersion(version, schema)
        if version < BY_ID:
            self._made[BY_ID + number] = SchemaVersion(BY_ID + number, schema)
        self.framing.know(number, version, _indexes(schema))

    def add_key(self, number: int, version: int, schema: SchemaInfo) -> None:
        """A key's schema with this id, of one of the types that keys have."""
        self.keys[version] = schema
        self.framing.know_key(number, version)

    def forget(self) -> None:
        """Every version is gone."""
        self.values.clear()
        self.keys.clear()
        self._made.clear()

    def known(self, version: int) -> SchemaVersion | None:
        """A version that was learned, a message of one, or a pair of two."""
        found = self.values.get(version) or self._made.get(version)
        if found is None:
            schema = self._pair(version) if version >= PAIR else self._message(version)
            if schema is not None:
                if len(self._made) >= VERSIONS_MAX:
                    self._made.clear()
                found = self._made[version] = SchemaVersion(version, schema)
        return found

    def _message(self, version: int) -> SchemaInfo | None:
        base, message = split_message(version)
        file = self.values.get(base)
        if file is None or not message or file.schema.type is not SchemaType.PROTOBUF_NATIVE:
            return None
        return with_message(file.schema, message)

    def _pair(self, version: int) -> SchemaInfo | None:
        parts = split_pair(version)
        key = None if parts is None else self.keys.get(parts[0])
        if parts is None or key is None:
            return None
        if not parts[1]:
            return key_value_schema(key, BYTES_SCHEMA, KeyValueEncoding.SEPARATED)
        value = self.known(parts[1])
        return None if value is None else key_value_schema(key, value.schema, KeyValueEncoding.SEPARATED)

    def find(self, schema: SchemaInfo) -> int | None:
        """The version of a schema that is not deleted, as far as they were learned."""
        if schema.type is SchemaType.KEY_VALUE:
            return self._find_pair(schema)
        for version in reversed(self.live):
            held = self.values[version].schema
            if held == schema or same(held, schema):
                return version
            if held.type is schema.type is SchemaType.PROTOBUF_NATIVE:
                found = _same_message(held, schema)
                if found is not None:
                    return version + (found << 34)
        return None

    def _find_pair(self, schema: SchemaInfo) -> int | None:
        parts = parts_of(schema)
        if parts is None:
            return None
        key = next((one for one in reversed(self.live_keys) if same(self.keys[one], parts[0])), None)
        value = None if key is None else self.find(parts[1])
        return None if key is None or value is None else pair(key, value)

    def set_newest(self, value: int | None) -> bool:
        """The newest version, of a pair where keys have schemas; returns whether it is another than before."""
        version = value
        if value is not None and self.live_keys:
            version = pair(self.live_keys[-1], value) or value
        newest = None if version is None else self.known(version)
        before, self.newest = self.newest, newest
        return newest is not before


def parts_of(schema: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo] | None:
    """The schemas of key and value, where each may be in the registry by itself: of a separated pair."""
    key, value, encoding = key_value_parts(schema)
    separated = encoding is KeyValueEncoding.SEPARATED
    return (key, value) if separated and key.type in KEYS and value.type in HELD else None


def _indexes(schema: SchemaInfo) -> tuple[bytes, ...] | None:
    """Of each message of a Protobuf schema's file."""
    if schema.type is not SchemaType.PROTOBUF_NATIVE:
        return None
    return tuple(encode_indexes(place) for place in places_of(schema.data)[:MESSAGES])


def _same_message(held: SchemaInfo, schema: SchemaInfo) -> int | None:
    """Which message of a file a schema is; None if the file is another."""
    found = with_root(held, native_message(schema).full_name)
    return found[0] if found is not None and same_file(found[1], schema) else None
