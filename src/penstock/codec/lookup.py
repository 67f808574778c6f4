"""From a schema to its codec, compiled once."""

from functools import lru_cache
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .codec import Codec, Part, bad_schema
from .defined import AvroCodec, FreeJsonCodec, JsonCodec
from .definition import avro_type, cache_key
from .key_value import KeyValueCodec, key_value_parts
from .primitive import PRIMITIVE_TYPES, PrimitiveCodec

CODECS_MAX: Final = 1024  # compiled codecs kept: about 50 KiB for a record of ten fields, so some 50 MiB


class _Key:
    """A schema as a key of the cache: equal by what a codec depends on, carrying the schema along."""

    __slots__ = ("_hash", "_identity", "schema")

    def __init__(self, schema: SchemaInfo) -> None:
        self.schema = schema
        self._identity = cache_key(schema)
        self._hash = hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._identity == other._identity


def codec_for(schema: SchemaInfo, reader: SchemaInfo | None = None, *, part: Part = "value") -> Codec:
    """The codec of `schema`; with `reader` it decodes what `schema` wrote as `reader` sees it.

    `part` says what messages call the value, and which kind of error a bad definition is. Raises
    BAD_VALUE_SCHEMA or BAD_KEY_SCHEMA; INCOMPATIBLE_SCHEMA if `reader` cannot read what `schema` wrote.
    """
    if reader is not None and (reader is schema or not reader.type.has_definition):
        if reader.type is not schema.type:
            raise _other_type(schema, reader)
        reader = None
    return _compiled(_Key(schema), None if reader is None else _Key(reader), part)


@lru_cache(maxsize=CODECS_MAX)
def _compiled(key: _Key, reader_key: _Key | None, part: Part) -> Codec:
    schema, reader = key.schema, None if reader_key is None else reader_key.schema
    if reader is not None and reader.type is not schema.type:
        raise _other_type(schema, reader)
    if schema.type in PRIMITIVE_TYPES:
        return PrimitiveCodec(schema, part)
    if schema.type is SchemaType.AVRO or schema.type is SchemaType.JSON:
        return _by_avro_definition(schema, reader, part)
    if schema.type is SchemaType.KEY_VALUE:
        return _key_value(schema, reader)
    if schema.type is SchemaType.PROTOBUF or schema.type is SchemaType.PROTOBUF_NATIVE:
        from .protobuf import protobuf_codec  # here, so that other types do not load protobuf

        return protobuf_codec(schema, reader, part)
    raise bad_schema(part, f"values have no encoding by a schema of type {schema.type.name}")


def _by_avro_definition(schema: SchemaInfo, reader: SchemaInfo | None, part: Part) -> Codec:
    writing: Any = avro_type(schema, part)
    reading: Any = writing if reader is None else avro_type(reader, part)
    if schema.type is SchemaType.AVRO:
        return AvroCodec(schema, writing, reading, part)
    if writing is None or reading is None:
        return FreeJsonCodec(schema, part)
    return JsonCodec(schema, writing, reading, part)


def _key_value(schema: SchemaInfo, reader: SchemaInfo | None) -> KeyValueCodec:
    key, value, encoding = key_value_parts(schema)
    reader_key, reader_value = (None, None) if reader is None else key_value_parts(reader)[:2]
    return KeyValueCodec(
        schema,
        codec_for(key, reader_key, part="key"),
        codec_for(value, reader_value),
        encoding,
    )


def _other_type(schema: SchemaInfo, reader: SchemaInfo) -> PenstockError:
    return PenstockError(
        ErrorKind.INCOMPATIBLE_SCHEMA, f"{schema.type.name} was written, which {reader.type.name} cannot read"
    )
