"""Payloads of the types without a definition (`penstock.codec.primitive`), a column at a time.

Times of day are what they count: ms (`TIME`) and ns (`LOCAL_TIME`). A `DATE` of Java's may have a time of day, so
it is a timestamp; a `LOCAL_DATE` is a date.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from penstock.codec import Codec
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .leaves import text
from .payloads import Decoder, bounds
from .raw import BadRows, Ints, Numbers
from .shapes import arrow_type

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


def _timestamp_ms(ms: Numbers) -> pa.Array:
    _refuse((ms > _SECONDS_MAX * 1000) | (ms < -_SECONDS_MAX * 1000))
    return pa.array(ms * 1000)


def _instant(parts: Numbers) -> pa.Array:
    return _micros(parts["high"].astype(np.int64), parts["low"].astype(np.int64), 1)


def _local_date_time(parts: Numbers) -> pa.Array:
    return _micros(parts["high"].astype(np.int64), parts["low"].astype(np.int64), _DAY_S)


def _micros(high: Ints, nanos: Ints, seconds: int) -> pa.Array:
    """us of counts of `seconds`, and ns of the rest; what is finer is cut off."""
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
    SchemaType.INSTANT: (_PAIR_S, _instant),
    SchemaType.LOCAL_DATE: (">i8", _date),
    SchemaType.LOCAL_TIME: (">i8", pa.array),
    SchemaType.LOCAL_DATE_TIME: (_PAIR_D, _local_date_time),
}


def layout_of(kind: SchemaType) -> "np.dtype[Any] | None":
    """How a type's values lie in payloads that are nothing but the numbers of their columns; None for others."""
    layout, make = _FIXED.get(kind, (None, None))
    return np.dtype(layout) if make is pa.array or kind is SchemaType.BOOLEAN else None


class PrimitiveDecoder(Decoder):
    """Reads one of the types without a definition."""

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
