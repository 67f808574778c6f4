"""Columns without parts: numbers, texts, bytes and what logical types make of them."""

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from penstock.codec.avro.types import Enum, Fixed, Logical, Primitive, Type

from .arrays import is_text
from .raw import BadRows, Flags, Ints, Numbers, Raw, Scalars, Spans
from .shapes import DECIMAL_DIGITS, arrow_type, spark_type

_TICKS: Final = {"millis": 1_000, "micros": 1, "nanos": -1_000}  # us in a tick; below 0: ticks in a us
_MICROS_MAX: Final = (1 << 63) - 1
_WORD: Final = 16  # bytes of Arrow's decimals
_DECIMAL_BYTES_MAX: Final = 1024  # as the codec has it

Build = Callable[[Raw, Numbers], pa.Array]


def leaf(writer: Primitive | Fixed, reader: Primitive | Fixed) -> Build:
    """The column of `reader` from a scan by `writer`, which it can read."""
    logical = reader.logical
    arrow = arrow_type(spark_type(reader))
    if reader.kind in ("bytes", "string", "fixed"):
        if logical is not None and logical.name == "decimal":
            return lambda raw, data: _decimals(cast("Spans", raw), data, logical, arrow)
        if logical is not None and reader.kind == "fixed":
            return lambda raw, data: _uuids(cast("Spans", raw), data)
        return lambda raw, data: span_array(cast("Spans", raw), data, arrow)
    if logical is not None and "timestamp-" in logical.name:
        factor = _TICKS[logical.name.rpartition("-")[2]]
        return lambda raw, _: _timestamps(cast("Scalars", raw), factor, arrow)
    if logical is not None and logical.name == "date":
        return lambda raw, _: _plain(cast("Scalars", raw), pa.int32()).view(arrow)
    return lambda raw, _: _plain(cast("Scalars", raw), arrow)


def enum_column(writer: Enum, reader: Type) -> Build:
    """Symbols as text; those that the reader does not know are its default."""
    texts = list(writer.symbols)
    if isinstance(reader, Enum):
        texts = [text if text in reader.symbols else str(reader.default) for text in texts]
    symbols = pa.array(texts, pa.string())

    def read(raw: Raw, _: Numbers) -> pa.Array:
        scalars = cast("Scalars", raw)
        return symbols.take(pa.array(scalars.values, mask=_nulls(scalars.valid)))

    return read


def span_array(spans: Spans, data: Numbers, arrow: pa.DataType) -> pa.Array:
    """Bytes or text; raises BadRows for text that is no UTF-8."""
    rows = len(spans.begins)
    if not rows:
        return pa.array([], arrow)
    begins, ends = spans.begins, spans.ends
    if spans.valid is not None:  # rows that are null stand where the row before them ended
        ends = np.maximum.accumulate(np.where(spans.valid, ends, 0))
        begins = np.where(spans.valid, begins, ends)
    # As an array's offsets these are the items wanted and the gaps between them.
    ranges = np.empty(2 * rows, np.int32)
    ranges[0::2], ranges[1::2] = begins, ends
    items = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(ranges), pa.py_buffer(data)])
    found = items.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32), mask=_nulls(spans.valid)))
    return text(found) if arrow == pa.string() else found


def text(found: pa.Array) -> pa.Array:
    """Bytes that are UTF-8 as text; raises BadRows."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        bad = np.fromiter((not is_text(item) for item in found.to_pylist()), np.bool_, len(found))
        raise BadRows(bad, "text that is no UTF-8") from None


def _nulls(valid: Flags | None) -> Flags | None:
    return None if valid is None else ~valid


def _plain(scalars: Scalars, arrow: pa.DataType) -> pa.Array:
    values = scalars.values
    wanted = arrow.to_pandas_dtype()
    if values.dtype != wanted:
        values = values.astype(wanted)
    return pa.array(values, mask=_nulls(scalars.valid))


def _timestamps(scalars: Scalars, factor: int, arrow: pa.DataType) -> pa.Array:
    ticks = cast("Ints", scalars.values)
    if factor > 1:
        limit = _MICROS_MAX // factor
        bad = (ticks > limit) | (ticks < -limit)
        if scalars.valid is not None:
            bad &= scalars.valid
        if bad.any():
            raise BadRows(bad, "a time beyond what Spark's timestamps hold")
        ticks = ticks * factor
    elif factor < 0:
        ticks = ticks // -factor
    return pa.array(ticks, mask=_nulls(scalars.valid)).view(arrow)


def _uuids(spans: Spans, data: Numbers) -> pa.Array:
    raw = span_array(spans, data, pa.binary()).to_pylist()
    return pa.array([None if item is None else str(UUID(bytes=item)) for item in raw], pa.string())


def _decimals(spans: Spans, data: Numbers, logical: Logical, arrow: pa.DataType) -> pa.Array:
    """Big-endian two's complement, of any length, times 10**-scale."""
    raw: list[bytes | None] = span_array(spans, data, pa.binary()).to_pylist()
    wide = logical.precision > DECIMAL_DIGITS
    limit = 10 ** (_DECIMAL_BYTES_MAX * 3 if wide else logical.precision)
    numbers = [0 if item is None else int.from_bytes(item, "big", signed=True) for item in raw]
    bad = np.fromiter(
        (
            abs(number) >= limit or (item is not None and len(item) > _DECIMAL_BYTES_MAX)
            for number, item in zip(numbers, raw, strict=True)
        ),
        np.bool_,
        len(raw),
    )
    if bad.any():
        raise BadRows(bad, f"a decimal of more than {logical.precision} digits")
    if wide:
        texts = [
            None if item is None else decimal_text(number, logical.scale)
            for number, item in zip(numbers, raw, strict=True)
        ]
        return pa.array(texts, pa.string())
    words = b"".join([number.to_bytes(_WORD, "little", signed=True) for number in numbers])
    valid = None if spans.valid is None else pa.array(spans.valid).buffers()[1]
    return pa.Array.from_buffers(arrow, len(raw), [valid, pa.py_buffer(words)])


def decimal_text(unscaled: int, scale: int) -> str:
    """Without an exponent, every digit."""
    return format(Decimal(unscaled).scaleb(-scale, Context(prec=len(str(abs(unscaled))) + scale + 3)), "f")
