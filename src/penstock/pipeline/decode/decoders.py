"""From a writer's and a reader's schema, or the type of a column, to a decoder, and the type of the column it makes.

JSON is read by way of Avro, for their definitions are the same.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.codec import Codec, codec_for, key_value_parts
from penstock.codec.avro.types import Type
from penstock.codec.defined import JsonCodec, from_json
from penstock.codec.definition import avro_type, cache_key
from penstock.codec.protobuf import ProtobufCodec
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError, as_pipeline_errors

from .arrays import fit
from .build import compile_build
from .leaves import text
from .messages import MessageDecoder, message_type
from .payloads import Decoder, PairDecoder, bounds
from .raw import BadRows, Flags, Ints, Numbers
from .scan import compile_scan, scan
from .shapes import arrow_type, spark_type

DECODERS_MAX: Final = 256
_decoders: OrderedDict[Any, Decoder] = OrderedDict()

_BY_AVRO: Final = (SchemaType.AVRO, SchemaType.JSON)

Cast = Callable[[pa.Array], pa.Array]

_WIDER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
}

SPARK: Final[dict[SchemaType, t.DataType]] = {
    SchemaType.NONE: t.BinaryType(),
    SchemaType.BYTES: t.BinaryType(),
    SchemaType.STRING: t.StringType(),
    SchemaType.BOOLEAN: t.BooleanType(),
    SchemaType.INT8: t.ByteType(),
    SchemaType.INT16: t.ShortType(),
    SchemaType.INT32: t.IntegerType(),
    SchemaType.INT64: t.LongType(),
    SchemaType.FLOAT: t.FloatType(),
    SchemaType.DOUBLE: t.DoubleType(),
    SchemaType.DATE: t.TimestampType(),
    SchemaType.TIME: t.LongType(),
    SchemaType.TIMESTAMP: t.TimestampType(),
    SchemaType.INSTANT: t.TimestampType(),
    SchemaType.LOCAL_DATE: t.DateType(),
    SchemaType.LOCAL_TIME: t.LongType(),
    SchemaType.LOCAL_DATE_TIME: t.TimestampNTZType(),
}

_DAY_S: Final = 86_400
_SECONDS_MAX: Final = (1 << 63) // 1_000_000 - 1  # whose us fit 64 bits
_PAIR_S: Final = np.dtype([("high", ">i8"), ("low", ">i4")])
_PAIR_D: Final = np.dtype([("high", ">i8"), ("low", ">i8")])


class AvroDecoder(Decoder):
    """Reads values written by the definition `writer` as the definition `reader` sees them."""

    def __init__(self, codec: Codec, writer: Type, reader: Type) -> None:
        super().__init__(arrow_type(spark_type(reader)))
        spark_type(writer)  # refuses a type that contains itself
        self.codec = codec
        self._scan = compile_scan(writer)
        self._build = compile_build(writer, reader)

    def column(self, payloads: pa.Array) -> pa.Array:
        return self.scanned(*bounds(payloads))

    def chosen(self, payloads: pa.Array, index: Ints) -> pa.Array:
        data, begins, ends = bounds(payloads)
        return self.scanned(data, begins[index], ends[index])

    def scanned(self, data: memoryview | bytes, begins: Ints, ends: Ints) -> pa.Array:
        """The column of Avro values that lie at `data[begins:ends]`; raises BadRows."""
        raw, bad, padded = scan(self._scan, data, begins, ends)
        if bad.any():
            raise BadRows(bad, "the payload is not of its schema")
        return self._build(raw, padded)

    def reason(self, payload: bytes) -> str:
        try:
            self.codec.decode_native(payload)
        except PenstockError as error:
            return error.message
        return ""


class JsonDecoder(AvroDecoder):
    """Reads JSON by a definition."""

    chosen = Decoder.chosen

    def __init__(self, codec: JsonCodec, writer: Type, reader: Type) -> None:
        super().__init__(codec, writer, reader)
        self._as_avro = codec.as_avro

    def column(self, payloads: pa.Array) -> pa.Array:
        bad: Flags = np.zeros(len(payloads), np.bool_)
        found: list[bytes] = []
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                found.append(self._as_avro(payload))
            except PenstockError:
                bad[row] = True
        if bad.any():
            raise BadRows(bad, "the payload is not of its schema")
        ends = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(found) else ends
        return self.scanned(b"".join(found), begins, ends)


class FreeJsonDecoder(Decoder):
    """JSON of any shape: its text, once it is known to be JSON."""

    def __init__(self) -> None:
        super().__init__(pa.string())

    def column(self, payloads: pa.Array) -> pa.Array:
        bad = np.fromiter((bool(self.reason(item)) for item in payloads.to_pylist()), np.bool_, len(payloads))
        if bad.any():
            raise BadRows(bad, "the payload is not JSON")
        return text(payloads)

    def reason(self, payload: bytes) -> str:
        try:
            from_json(payload, "value")
        except PenstockError as error:
            return error.message
        return ""


@as_pipeline_errors()
def column_type(schema: SchemaInfo) -> DataType:
    """The column that a schema makes. Raises PipelineError if there is none."""
    if schema.type in SPARK:
        return SPARK[schema.type]
    if schema.type in _BY_AVRO:
        kind = avro_type(schema)
        return StringType() if kind is None else spark_type(kind)
    if schema.type is SchemaType.KEY_VALUE:
        key, value, _ = key_value_parts(schema)
        return StructType([StructField("key", column_type(key)), StructField("value", column_type(value))])
    codec = codec_for(schema)
    assert isinstance(codec, ProtobufCodec)
    return message_type(codec.descriptor)


def decoder_for(writer: SchemaInfo, reader: SchemaInfo | None, wanted: DataType) -> Decoder:
    """What `writer` wrote as `reader` sees it; without a reader, as far as the column `wanted` can hold it.

    Raises PipelineError if that cannot be.
    """
    key = (cache_key(writer), None if reader is None else cache_key(reader), wanted.json())
    found = _decoders.get(key)
    if found is None:
        with as_pipeline_errors():
            found = _make(writer, reader) if reader is not None else _cast(writer, wanted)
        _decoders[key] = found
        if len(_decoders) > DECODERS_MAX:
            _decoders.popitem(last=False)
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
    if reading is None:
        if writer.type is not SchemaType.JSON:
            raise PipelineError(f"{writer.type.name} was written, which JSON of any shape cannot read")
        return FreeJsonDecoder()
    if (
        writing is None
    ):  # JSON of any shape: read as if the reader's definition had been declared when it was written
        writer, writing = SchemaInfo(SchemaType.JSON, reader.data), reading
    codec = codec_for(writer)
    if isinstance(codec, JsonCodec):
        return JsonDecoder(codec, writing, reading)
    return AvroDecoder(codec, writing, reading)


class CastDecoder(Decoder):
    """Reads as `inner` does and gives another type. Raises PipelineError if that would lose something."""

    def __init__(self, inner: Decoder, arrow: pa.DataType) -> None:
        super().__init__(arrow)
        self._inner = inner
        self._cast = compile_cast(inner.arrow, arrow)

    def column(self, payloads: pa.Array) -> pa.Array:
        return self._cast(self._inner.column(payloads))

    def reason(self, payload: bytes) -> str:
        return self._inner.reason(payload)


def compile_cast(source: pa.DataType, target: pa.DataType, path: str = "value") -> Cast:
    """The function from a column of `source` to one of `target`; it raises BadRows for text that is not UTF-8.

    Raises PipelineError if there is no such function.
    """
    _check(source, target, path)
    return lambda column: fit(column, target, _leaf)


def _check(source: pa.DataType, target: pa.DataType, path: str) -> None:
    if source == target or pa.types.is_null(source):
        return
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        for field in target:
            if (place := source.get_field_index(field.name)) >= 0:
                _check(source.field(place).type, field.type, f"{path}.{field.name}")
    elif pa.types.is_list(source) and pa.types.is_list(target):
        _check(source.value_type, target.value_type, f"{path}[]")
    elif pa.types.is_map(source) and pa.types.is_map(target):
        _check(source.key_type, target.key_type, f"{path}{{key}}")
        _check(source.item_type, target.item_type, f"{path}{{}}")
    elif not _holds(source, target):
        raise PipelineError(f"{path}: {source} was written, which {target} cannot hold")


def _holds(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        whole, wanted = source.precision - source.scale, target.precision - target.scale
        return bool(source.scale <= target.scale and whole <= wanted)
    return target in _WIDER.get(source, ())


def _leaf(column: pa.Array, target: pa.DataType) -> pa.Array:
    return text(column) if pa.types.is_string(target) else column.cast(target, safe=False)


def _timestamp_ms(ms: Numbers) -> pa.Array:
    _refuse((ms > _SECONDS_MAX * 1000) | (ms < -_SECONDS_MAX * 1000))
    return pa.array(ms * 1000)


def _micros(parts: Numbers, seconds: int) -> pa.Array:
    """us of counts of `seconds`, and ns of the rest; finer parts are cut off."""
    high, nanos = parts["high"].astype(np.int64), parts["low"].astype(np.int64)
    limit = _SECONDS_MAX // seconds - 1
    _refuse((high > limit) | (high < -limit) | (nanos < 0) | (nanos >= seconds * 1_000_000_000))
    return pa.array(high * (seconds * 1_000_000) + nanos // 1000)


def _date(days: Numbers) -> pa.Array:
    _refuse((days >= 1 << 31) | (days < -(1 << 31)))
    return pa.array(days.astype(np.int32))


def _refuse(bad: Any) -> None:
    if bad.any():
        raise BadRows(bad, "a time beyond what Spark's types hold")


# How each is laid out, and what becomes of it; then it is viewed as its type.
_FIXED: Final[dict[SchemaType, tuple[Any, Callable[[Numbers], pa.Array]]]] = {
    SchemaType.BOOLEAN: ("u1", lambda byte: pa.array(byte != 0)),
    SchemaType.INT8: ("i1", pa.array),
    SchemaType.INT16: (">i2", pa.array),
    SchemaType.INT32: (">i4", pa.array),
    SchemaType.INT64: (">i8", pa.array),
    SchemaType.FLOAT: (">f4", pa.array),
    SchemaType.DOUBLE: (">f8", pa.array),
    SchemaType.DATE: (">i8", _timestamp_ms),
    SchemaType.TIME: (">i8", pa.array),
    SchemaType.TIMESTAMP: (">i8", _timestamp_ms),
    SchemaType.INSTANT: (_PAIR_S, lambda parts: _micros(parts, 1)),
    SchemaType.LOCAL_DATE: (">i8", _date),
    SchemaType.LOCAL_TIME: (">i8", pa.array),
    SchemaType.LOCAL_DATE_TIME: (_PAIR_D, lambda parts: _micros(parts, _DAY_S)),
}


def layout_of(kind: SchemaType) -> "np.dtype[Any] | None":
    """How a type's values lie in payloads that are nothing but the numbers of their columns; None for others."""
    layout, make = _FIXED.get(kind, (None, None))
    return np.dtype(layout) if make is pa.array or kind is SchemaType.BOOLEAN else None


class PrimitiveDecoder(Decoder):
    """Reads one of the types without a definition (`penstock.codec.primitive`).

    Times of day are what they count: ms (`TIME`) and ns (`LOCAL_TIME`). A `DATE` of Java's may have a time of day, so it is a
    timestamp; a `LOCAL_DATE` is a date.
    """

    def __init__(self, schema: SchemaInfo, codec: Codec) -> None:
        super().__init__(arrow_type(SPARK[schema.type]))
        self._type = schema.type
        self._codec = codec
        charset = schema.properties.get("__charset") or "UTF-8"
        self._unicode = charset.upper() == "UTF-8"

    def column(self, payloads: pa.Array) -> pa.Array:
        if self._type in _FIXED:
            return self._fixed(payloads)
        if self._type is not SchemaType.STRING:
            return payloads
        return text(payloads) if self._unicode else self._texts(payloads)

    def _fixed(self, payloads: pa.Array) -> pa.Array:
        layout, make = _FIXED[self._type]
        dtype = np.dtype(layout)
        data, begins, ends = bounds(payloads)
        bad = ends - begins != dtype.itemsize
        if bad.any():
            raise BadRows(bad, "a payload of another size")
        values = np.frombuffer(data, dtype, len(payloads))
        if dtype.fields is None:
            values = values.astype(dtype.newbyteorder("="))
        found = make(values)
        return found if found.type == self.arrow else found.view(self.arrow)

    def _texts(self, payloads: pa.Array) -> pa.Array:
        raw = payloads.to_pylist()
        bad = np.fromiter((bool(self.reason(item)) for item in raw), np.bool_, len(raw))
        if bad.any():
            raise BadRows(bad, "text that its charset does not have")
        return pa.array([self._codec.decode_native(item) for item in raw], pa.string())

    def reason(self, payload: bytes) -> str:
        try:
            self._codec.decode_native(payload)
        except PenstockError as error:
            return error.message
        return ""
