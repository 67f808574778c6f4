"""Rows to messages of a batch's payload, a column at a time; rejected rows to those of the dead-letter topic.

metadata size u32 | properties, key, payload size, event time, … | payload            each message

Dead letters carry their key, value and properties as they were, and where they come from and why in properties of
their own.
"""

from base64 import b64encode
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.decode.arrays import is_text, parts
from penstock.pipeline.encode import binary
from penstock.pipeline.encode.binary import Mask, Numbers
from penstock.pipeline.errors import PipelineError

_BASE64: Final = b"\x30\x01"
_NULL: Final = b"\x48\x01"
_PAIR: Final = 0x0A  # a property's tag, and that of its name within
_PAIR_VALUE: Final = 0x12

_PROPERTIES: Final = ("properties", "headers")  # columns with them: a map, or structs of key and value

# Property by column, if there is one.
_ORIGIN: Final = {
    "topic": "x-dlq-topic",
    "partition": "x-dlq-partition",
    "offset": "x-dlq-offset",
    "schema_version": "x-dlq-schema-version",
}


class Keys(NamedTuple):
    """Keys as they are sent: text, or base64 if the bytes are not text (`encoded` marks those rows). `content` are the bytes,
    if they differ from the texts."""

    texts: Any
    encoded: Mask | None = None
    content: Any = None


class Columns(NamedTuple):
    """The parts of messages, row by row; None if no row has one. Times are ms since the epoch.

    `value` null is a null value; the other nulls are nothing. `properties` are encoded fields.
    """

    value: Any
    key: Keys | None = None
    properties: Any = None
    event_time: Any = None
    ordering_key: Any = None


def payloads(columns: Columns) -> Any:
    """Every row as a message within a batch: an array of bytes."""
    value, key = columns.value, columns.key
    head: list[Any] = []
    if columns.properties is not None:
        head.append(columns.properties)
    if key is not None:
        head += binary.sized(0x12, key.texts)
    head.append(binary.varints(0x18, binary.sizes(value)))
    if columns.event_time is not None:
        head.append(binary.varints(0x28, *_numbers(columns.event_time)))
    if key is not None and key.encoded is not None:
        head.append(binary.constant(_BASE64, key.encoded))
    if columns.ordering_key is not None:
        head += binary.sized(0x3A, columns.ordering_key)
    present = binary.there(value)
    if present is not None:
        head.append(binary.constant(_NULL, ~present))
    size: Numbers = np.zeros(len(value), np.int64)
    for piece in head:
        size += binary.sizes(piece)
    return binary.join([binary.big_endian(size), *head, value])


def columns_of(batch: pa.RecordBatch, value: Any) -> Columns:
    """The parts of messages in a frame's columns; `value` is the encoded one. Raises PipelineError."""
    names = set(batch.schema.names)
    return Columns(
        value=binary.as_binary(value),
        key=keys_of(batch.column("key")) if "key" in names else None,
        properties=next((_properties(batch.column(name)) for name in _PROPERTIES if name in names), None),
        event_time=milliseconds(batch.column("event_time")) if "event_time" in names else None,
        ordering_key=binary.as_binary(batch.column("ordering_key")) if "ordering_key" in names else None,
    )


def keys_of(column: Any) -> Keys | None:
    """Keys of text or bytes. Bytes that are text are a text key: so they come back to where they came from."""
    if column.null_count == len(column):
        return None
    keys = binary.as_binary(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return Keys(keys)
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        return encoded_keys(keys, text_as_it_is=True)
    return Keys(keys)


def encoded_keys(column: Any, *, text_as_it_is: bool = False) -> Keys:
    """Keys of bytes as base64. Those of key/value schemas are so in any case, as Pulsar's clients send them."""
    keys = column.to_pylist()
    encoded = [key is not None and not (text_as_it_is and is_text(key)) for key in keys]
    texts = [b64encode(key) if coded else key for key, coded in zip(keys, encoded, strict=True)]
    return Keys(pa.array(texts, pa.binary()), np.array(encoded, np.bool_), binary.as_binary(column))


def milliseconds(column: Any) -> Any:
    """Timestamps as ms since the epoch; whole numbers are ms already."""
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
        return pc.floor(pc.divide(micros.cast(pa.float64()), 1000.0)).cast(pa.int64())
    return column.cast(pa.int64())


def _numbers(array: Any) -> tuple[Numbers, Mask | None]:
    """The numbers, 0 for null, and which are there. 0 is none, as on the wire."""
    filled: Numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return filled, filled != 0


def _properties(column: Any) -> Any:
    """Properties, a map or structs of key and value, as fields of messages' metadata. Raises PipelineError."""
    pairs, counts = parts(column)
    if not len(pairs):
        return None
    names, values = pairs.field(0), pairs.field(1)
    if names.null_count or values.null_count:
        raise PipelineError("a property without a name or a value: column properties or headers holds null")
    return binary.grouped(_pairs(names, values), np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def _pairs(names: Any, values: Any) -> Any:
    """Properties as fields of a message's metadata."""
    if pa.types.is_binary(values.type):
        _check_text(values)
    inner = binary.join(
        [*binary.sized(_PAIR, binary.as_binary(names)), *binary.sized(_PAIR_VALUE, binary.as_binary(values))]
    )
    return binary.join(binary.sized(_PAIR, inner))


def _check_text(values: Any) -> None:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        raise PipelineError("column headers holds a value that is not UTF-8; properties are texts") from None


def pairs_of(batch: pa.RecordBatch) -> list[list[tuple[Any, Any]]]:
    """The properties of each row as pairs, from whichever column has them."""
    names = batch.schema.names
    if "properties" in names:
        return [list(row or ()) for row in batch.column("properties").to_pylist()]
    if "headers" in names:
        rows = batch.column("headers").to_pylist()
        return [[(each["key"], each["value"]) for each in row or ()] for row in rows]
    return [[] for _ in range(batch.num_rows)]


def text_of(value: Any) -> str:
    """A property's value, which a column of headers has as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def dead_letters(batch: pa.RecordBatch, writer: str, number: int) -> Columns:
    """The messages of rows with an `_error`. `writer` and `number` say which batch they were rejected in."""
    names = batch.schema.names
    key = next((name for name in ("_key", "key") if name in names), None)  # as it came, if it is there
    value = batch.column("_raw") if "_raw" in names else batch.column("value")
    if not (pa.types.is_binary(value.type) or pa.types.is_string(value.type)):
        raise PipelineError("column _raw is missing: rejected rows go on with their value as it was")
    origin = [(_ORIGIN[name], batch.column(name).to_pylist()) for name in _ORIGIN if name in names]
    given = [
        [(name, text_of(value)) for name, value in row if name is not None and value is not None]
        for row in pairs_of(batch)
    ]
    rows: list[list[tuple[str, str]]] = []
    for row, error in enumerate(batch.column("_error").to_pylist()):
        own = [(name, str(values[row])) for name, values in origin if values[row] is not None]
        own += [("x-dlq-error", error), ("x-dlq-query", writer), ("x-dlq-batch", str(number))]
        rows.append([*given[row], *own])
    return Columns(
        value=binary.as_binary(value),
        key=keys_of(batch.column(key)) if key is not None else None,
        properties=_properties(pa.array(rows, pa.map_(pa.string(), pa.string()))),
        event_time=milliseconds(batch.column("event_time")) if "event_time" in names else None,
        ordering_key=binary.as_binary(batch.column("ordering_key")) if "ordering_key" in names else None,
    )
