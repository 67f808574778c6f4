"""Records as JSON, by the format of a consumer instance."""

from base64 import b64encode
from typing import Any, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.groups import GroupRecord
from penstock.codec.codec import Codec
from penstock.codec.key_value import KeyValueCodec
from penstock.codec.lookup import codec_for
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.subjects import MAGIC, VALUE
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.call import UNREADABLE
from penstock.protocols.confluent.registry.call import sees

from .call import shown
from .formats import Format
from .schemas import KEY, ContentSchema, ProxySchemas, id_of, raise_retriable

MISSING_MAX: Final = 16  # ids of schemas that there are not, for which the registry is asked for one answer

# Of codecs, of JSON, and of a Protobuf message that is not the first of its file.
_FAILURES = (PenstockError, ValueError, RecursionError)

_decode = msgspec.json.Decoder().decode


class RecordHeader(msgspec.Struct):
    """A header; its value is base64."""

    name: str
    value: str | None


class Record(msgspec.Struct, omit_defaults=True):
    """A record. `headers` is left out without headers."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int
    timestamp: int
    headers: list[RecordHeader] = []


class _Schemas:
    """The schemas of one topic's values that records of a fetch have, by version."""

    __slots__ = ("codecs", "framings", "name")

    def __init__(self, topic: TopicName) -> None:
        self.name = shown(topic)
        self.codecs: dict[int, Codec] = {}
        self.framings: dict[int, ContentSchema | None] = {}


class Records:
    """Writes the records of one fetch."""

    def __init__(self, broker: Broker, schemas: ProxySchemas, format: Format, caller: Caller) -> None:
        self._broker = broker
        self._schemas = schemas
        self._format = format
        self._caller = caller
        self._by_id: dict[int, ContentSchema | None] = {}  # of contents that name a schema
        self._missing = 0  # how many of them there are not
        self._topics: dict[TopicName, _Schemas] = {}
        self._topic: TopicName | None = None  # of the last record
        self._of_topic: _Schemas

    async def show(self, record: GroupRecord) -> Record:
        """A record as it is answered. Raises ConfluentError for a value that is not of the format, and PenstockError if its schema cannot be
        found out now."""
        if record.topic is not self._topic:
            self._topic = record.topic
            found = self._topics.get(record.topic)
            if found is None:
                found = self._topics[record.topic] = _Schemas(record.topic)
            self._of_topic = found
        try:
            if record.error is not None:
                raise ValueError(record.error)
            if record.value is None:
                value = None
            elif record.schema_version is None and not record.value.startswith(MAGIC):
                value = self._bare(record.value)
            else:
                value = await self._value(record, record.value)
        except _FAILURES as error:
            raise_retriable(error)
            place = f"topic {self._of_topic.name}, partition {record.partition}, offset {record.offset}"
            why = getattr(error, "message", "") or str(error)
            raise ConfluentError(
                UNREADABLE, f"value deserialization error for format {self._format}: {place}: {why}"
            ) from None
        return Record(
            self._of_topic.name,
            None if record.key is None else await self._key(record, record.key),
            value,
            record.partition,
            record.offset,
            record.timestamp,
            [
                RecordHeader(name, None if content is None else b64encode(content).decode())
                for name, content in record.headers
            ]
            if record.headers
            else [],
        )

    async def _value(self, record: GroupRecord, value: bytes) -> Any:
        if self._format is Format.BINARY:
            # A cluster's own groups give values as they are stored: framed already.
            if record.schema_version is not None and self._broker.groups is None:
                framing = await self._framing(record.topic, record.schema_version)
                value = value if framing is None else framing.framed(value)
            return b64encode(value).decode()
        if record.schema_version is not None:
            codec = await self._codec(record, record.schema_version)
            if isinstance(codec, KeyValueCodec):
                return _pair(codec, record)[1]
            return codec.decode(value[record.value_frame :])
        return await self._content(record.topic, value)

    async def _codec(self, record: GroupRecord, version: int) -> Codec:
        found = self._of_topic.codecs.get(version)
        if found is None:
            schema = (await self._broker.schemas.find_version(record.topic, version)).schema
            found = self._of_topic.codecs[version] = codec_for(schema)
        return found

    async def _framing(self, topic: TopicName, version: int) -> ContentSchema | None:
        framings = self._of_topic.framings
        if version not in framings:
            framings[version] = await self._schemas.of_version(topic, version)
        return framings[version]

    async def _key(self, record: GroupRecord, key: bytes) -> Any:
        """A key that is not of the format is base64."""
        if self._format is not Format.BINARY:
            try:
                if record.key_frame and record.schema_version is not None:
                    codec = await self._codec(record, record.schema_version)
                    if isinstance(codec, KeyValueCodec):
                        return _pair(codec, record)[0]
                return await self._content(record.topic, key)
            except _FAILURES as error:
                raise_retriable(error)
        return b64encode(key).decode()

    async def _content(self, topic: TopicName, content: bytes) -> Any:
        """What bytes without a version mean: JSON, or behind the id of a schema."""
        schema_id = id_of(content)
        schema = None
        if schema_id is not None:
            if schema_id not in self._by_id and self._missing < MISSING_MAX:
                self._by_id[schema_id] = schema = await self._schema(topic, schema_id)
                self._missing += schema is None
            schema = self._by_id.get(schema_id)
        return self._bare(content) if schema is None else schema.decode(content)

    async def _schema(self, topic: TopicName, schema_id: int) -> ContentSchema | None:
        """The schema with an id, if the caller may see it: any producer may name any id."""
        found = await self._schemas.by_id(schema_id)
        if found is None or self._caller.role is None:
            return found
        subject_of, topic_of = self._schemas.subject_of, self._schemas.topic_of
        every = await self._schemas.subjects_with(schema_id)
        own = {subject_of(topic, VALUE), subject_of(topic, KEY)}
        seen = every & own or any(sees(self._caller, topic_of(one)) for one in every)
        return found if seen else None

    def _bare(self, content: bytes) -> Any:
        """What bytes mean that name no schema."""
        if self._format is Format.BINARY:
            return b64encode(content).decode()
        if self._format is Format.JSON:
            return _decode(content)
        raise ValueError("it names no schema of the registry")


def _pair(codec: KeyValueCodec, record: GroupRecord) -> tuple[Any, Any]:
    """A key and a value that have schemas together."""
    in_key = record.key is not None and codec.separated
    key = b64encode((record.key or b"")[record.key_frame :]).decode() if in_key else None
    return codec.decode_pair(key, None if record.value is None else record.value[record.value_frame :])
