"""Records as JSON, by the format of a consumer instance."""

from base64 import b64encode
from typing import Any

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.groups import GroupRecord
from penstock.codec.key_value import KeyValueCodec
from penstock.codec.lookup import codec_for
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.protocols.confluent.call import UNREADABLE

from .call import shown
from .formats import Format
from .schemas import ProxySchemas, id_of

# Of codecs, of JSON, and of a Protobuf message that is not the first of its file.
_FAILURES = (PenstockError, ValueError, RecursionError)


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


class Records:
    """Writes records of one instance."""

    def __init__(self, broker: Broker, schemas: ProxySchemas, format: Format) -> None:
        self._broker = broker
        self._schemas = schemas
        self._format = format

    async def show(self, record: GroupRecord) -> Record:
        """A record as it is answered. Raises ConfluentError for a value that is not of the format."""
        try:
            if record.error is not None:
                raise ValueError(record.error)
            value = None if record.value is None else await self._value(record, record.value)
        except _FAILURES as error:
            place = f"topic {shown(record.topic)}, partition {record.partition}, offset {record.offset}"
            why = getattr(error, "message", "") or str(error)
            raise ConfluentError(
                UNREADABLE, f"value deserialization error for format {self._format}: {place}: {why}"
            ) from None
        return Record(
            shown(record.topic),
            None if record.key is None else await self._key(record, record.key),
            value,
            record.partition,
            record.offset,
            record.timestamp,
            [
                RecordHeader(name, None if content is None else b64encode(content).decode())
                for name, content in record.headers
            ],
        )

    async def _value(self, record: GroupRecord, value: bytes) -> Any:
        if self._format is Format.BINARY:
            return b64encode(value).decode()
        if record.schema_version is not None:
            found = await self._broker.schemas.find_version(record.topic, record.schema_version)
            codec = codec_for(found.schema)
            if isinstance(codec, KeyValueCodec):
                key = b64encode(record.key).decode() if record.key is not None and codec.separated else None
                return codec.decode_pair(key, value)[1]
            return codec.decode(value)
        return await self._content(value)

    async def _key(self, record: GroupRecord, key: bytes) -> Any:
        """A key that is not of the format is base64."""
        if self._format is not Format.BINARY:
            try:
                return await self._content(key)
            except _FAILURES:
                pass
        return b64encode(key).decode()

    async def _content(self, content: bytes) -> Any:
        """What bytes without a version mean: JSON, or behind the id of a schema."""
        schema_id = id_of(content)
        schema = None if schema_id is None else await self._schemas.by_id(schema_id)
        if schema is not None:
            return schema.decode(content)
        if self._format is Format.JSON:
            return msgspec.json.decode(content)
        raise ValueError("it names no schema of the registry")
