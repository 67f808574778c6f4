"""From a writer's and a reader's schema to a decoder, and the type of the column it makes."""

from collections import OrderedDict
from typing import Any, Final

from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.codec import codec_for, key_value_parts
from penstock.codec.avro.types import Type
from penstock.codec.defined import JsonCodec
from penstock.codec.definition import avro_type, cache_key
from penstock.codec.protobuf import ProtobufCodec
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError

from .avro import AvroDecoder, FreeJsonDecoder, JsonDecoder
from .cast import CastDecoder
from .messages import MessageDecoder, message_type
from .pairs import PairDecoder
from .payloads import Decoder
from .primitives import SPARK, PrimitiveDecoder
from .shapes import arrow_type, spark_type

_KEPT_MAX: Final = 256
_kept: OrderedDict[Any, Decoder] = OrderedDict()

_BY_AVRO: Final = (SchemaType.AVRO, SchemaType.JSON)


def column_type(schema: SchemaInfo) -> DataType:
    """The column that a schema makes. Raises PipelineError where there is none."""
    try:
        return _column_type(schema)
    except PipelineError:
        raise
    except PenstockError as error:
        raise PipelineError(error.message, error.kind) from None


def _column_type(schema: SchemaInfo) -> DataType:
    if schema.type in SPARK:
        return SPARK[schema.type]
    if schema.type in _BY_AVRO:
        kind = avro_type(schema)
        return StringType() if kind is None else spark_type(kind)
    if schema.type is SchemaType.KEY_VALUE:
        key, value, _ = key_value_parts(schema)
        return StructType([StructField("key", _column_type(key)), StructField("value", _column_type(value))])
    codec = codec_for(schema)
    assert isinstance(codec, ProtobufCodec)
    return message_type(codec.descriptor)


def decoder_for(writer: SchemaInfo, reader: SchemaInfo | None, wanted: DataType) -> Decoder:
    """What `writer` wrote as `reader` sees it; without a reader, as far as the column `wanted` can hold it.

    Raises PipelineError where that cannot be.
    """
    key = (cache_key(writer), None if reader is None else cache_key(reader), wanted.json())
    found = _kept.get(key)
    if found is None:
        try:
            found = _make(writer, reader) if reader is not None else _cast(writer, wanted)
        except PipelineError:
            raise
        except PenstockError as error:
            raise PipelineError(error.message, error.kind) from None
        _kept[key] = found
        if len(_kept) > _KEPT_MAX:
            _kept.popitem(last=False)
    return found


def _cast(writer: SchemaInfo, wanted: DataType) -> Decoder:
    if writer.type is SchemaType.KEY_VALUE:
        key, value, encoding = key_value_parts(writer)
        if not isinstance(wanted, StructType) or set(wanted.names) != {"key", "value"}:
            raise PipelineError("the columns of a key/value schema are key and value")
        return PairDecoder(
            _cast(key, wanted["key"].dataType), _cast(value, wanted["value"].dataType), encoding
        )
    return CastDecoder(_make(writer, writer), arrow_type(wanted))


def _make(writer: SchemaInfo, reader: SchemaInfo) -> Decoder:
    if writer.type in _BY_AVRO and reader.type in _BY_AVRO:
        return _by_avro(writer, reader)
    if writer.type is not reader.type:
        raise PipelineError(f"{writer.type.name} was written, which {reader.type.name} cannot read")
    if writer.type in SPARK:
        return PrimitiveDecoder(writer, codec_for(writer))
    if writer.type is SchemaType.KEY_VALUE:
        key, value, encoding = key_value_parts(writer)
        reader_key, reader_value, _ = key_value_parts(reader)
        return PairDecoder(_make(key, reader_key), _make(value, reader_value), encoding)
    codec = codec_for(writer, reader)
    assert isinstance(codec, ProtobufCodec)
    return MessageDecoder(codec)


def _by_avro(writer: SchemaInfo, reader: SchemaInfo) -> Decoder:
    writing: Type | None = avro_type(writer)
    reading: Type | None = avro_type(reader)
    if writing is None or reading is None:
        if reading is not None or writer.type is not SchemaType.JSON:
            raise PipelineError("JSON was written without a definition, or is to be read without one")
        return FreeJsonDecoder()
    codec = codec_for(writer)
    if isinstance(codec, JsonCodec):
        return JsonDecoder(codec, writing, reading)
    return AvroDecoder(codec, writing, reading)
