"""Protobuf payloads: each parsed by Protobuf's own library, then gathered field by field.

Integers without a sign go into the next wider type, of 64 bits into decimals; enums are their names (a number
that has none is its digits); a `Timestamp` is a timestamp, a wrapper what it wraps; of a `oneof` the others are
null. A message that contains itself has no column.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from penstock.codec.cardinality import is_repeated
from penstock.codec.descriptors import TYPE_NAMES
from penstock.codec.protobuf import ProtobufCodec
from penstock.model.errors import PenstockError

from .arrays import at_rows, offsets_of, struct_of
from .payloads import Decoder
from .raw import BadRows
from .shapes import arrow_type, counted, recursive

_SCALARS: Final[dict[str, t.DataType]] = {
    "bool": t.BooleanType(),
    "string": t.StringType(),
    "bytes": t.BinaryType(),
    "enum": t.StringType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), t.IntegerType()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), t.LongType()),
    **dict.fromkeys(("uint64", "fixed64"), t.DecimalType(20, 0)),
}

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_MICROS_MAX: Final = (1 << 63) - 1

Gather = Callable[[Sequence[Any]], pa.Array]


class MessageDecoder(Decoder):
    """Reads messages as `codec` does."""

    def __init__(self, codec: ProtobufCodec) -> None:
        super().__init__(arrow_type(message_type(codec.descriptor)))
        self._codec = codec
        self._gather = _message(codec.descriptor, self.arrow)

    def column(self, payloads: pa.Array) -> pa.Array:
        messages: list[Any] = []
        bad = np.zeros(len(payloads), np.bool_)
        for row, payload in enumerate(payloads.to_pylist()):
            try:
                messages.append(self._codec.message(payload))
            except PenstockError:
                bad[row] = True
        if bad.any():
            raise BadRows(bad, "the payload is no message of its schema")
        try:
            return self._gather(messages)
        except (ValueError, OverflowError, pa.ArrowException):  # text that is no UTF-8, a time out of range
            bad = np.fromiter((not self._fits(message) for message in messages), np.bool_, len(messages))
            raise BadRows(bad, "a value that its column cannot hold") from None

    def _fits(self, message: Any) -> bool:
        try:
            return self._gather([message]) is not None
        except (ValueError, OverflowError, pa.ArrowException):
            return False

    def reason(self, payload: bytes) -> str:
        try:
            self._codec.message(payload)
        except PenstockError as error:
            return error.message
        return ""


def message_type(descriptor: Any, path: str = "value") -> t.DataType:
    """A message's column; raises PipelineError for one that contains itself."""
    return _type_of_message(descriptor, path, frozenset(), count(1))


def _type_of_message(
    descriptor: Any, path: str, inside: frozenset[str], columns: Iterator[int]
) -> t.DataType:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return t.TimestampType()
    if name in _WRAPPERS:
        return _SCALARS[TYPE_NAMES[descriptor.fields_by_name["value"].type]]
    if name in inside:
        raise recursive(path, f"message {name}")
    inside |= {name}

    def item(field: Any, at: str) -> t.DataType:
        if field.message_type is not None:
            return _type_of_message(field.message_type, at, inside, columns)
        return _SCALARS[TYPE_NAMES[field.type]]

    fields = []
    for field in descriptor.fields:
        at = f"{path}.{field.name}"
        counted(columns, at)
        if _is_map(field):
            key, value = _pair(field)
            kind: t.DataType = t.MapType(item(key, at), item(value, at))
        else:
            kind = t.ArrayType(item(field, at)) if is_repeated(field) else item(field, at)
        fields.append(t.StructField(field.name, kind))
    return t.StructType(fields)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _pair(field: Any) -> tuple[Any, Any]:
    names = field.message_type.fields_by_name
    return names["key"], names["value"]


def _message(descriptor: Any, arrow: pa.DataType) -> Gather:
    """From messages, or None, to their column."""
    if descriptor.full_name == _TIMESTAMP:
        return lambda messages: pa.array([m and _micros(m) for m in messages], pa.int64()).view(arrow)
    if descriptor.full_name in _WRAPPERS:
        return lambda messages: pa.array([None if m is None else m.value for m in messages], arrow)
    fields = [_field(field, arrow.field(n).type) for n, field in enumerate(descriptor.fields)]

    def gather(messages: Sequence[Any]) -> pa.Array:
        there = [m for m in messages if m is not None]
        found = struct_of([field(there) for field in fields], arrow, len(there), None)
        if len(there) == len(messages):
            return found
        valid = np.fromiter((m is not None for m in messages), np.bool_, len(messages))
        return at_rows(found, valid)

    return gather


def _micros(message: Any) -> int:
    micros: int = message.seconds * 1_000_000 + message.nanos // 1000
    if abs(micros) > _MICROS_MAX:
        raise OverflowError("a time beyond what Spark's timestamps hold")
    return micros


def _field(field: Any, arrow: pa.DataType) -> Gather:
    name = field.name
    if _is_map(field):
        key, value = _pair(field)
        keys, items = _item(key, arrow.key_type), _item(value, arrow.item_type)

        def pairs(messages: Sequence[Any]) -> pa.Array:
            maps = [getattr(message, name) for message in messages]
            found = [(k, each[k]) for each in maps for k in each]
            return pa.MapArray.from_arrays(
                offsets_of([len(each) for each in maps]),
                keys([k for k, _ in found]),
                items([v for _, v in found]),
                type=arrow,
            )

        return pairs
    item = _item(field, arrow.value_type if is_repeated(field) else arrow)
    if is_repeated(field):

        def repeated(messages: Sequence[Any]) -> pa.Array:
            lists = [getattr(message, name) for message in messages]
            return pa.ListArray.from_arrays(
                offsets_of([len(each) for each in lists]),
                item([value for each in lists for value in each]),
                type=arrow,
            )

        return repeated
    if field.has_presence:
        return lambda ms: item([getattr(m, name) if m.HasField(name) else None for m in ms])
    return lambda messages: item([getattr(message, name) for message in messages])


def _item(field: Any, arrow: pa.DataType) -> Gather:
    if field.message_type is not None:
        return _message(field.message_type, arrow)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda numbers: pa.array(
            [None if n is None else names.get(n) or str(n) for n in numbers], pa.string()
        )
    if pa.types.is_decimal(arrow):
        return lambda numbers: pa.array(numbers, pa.uint64()).cast(arrow)
    return lambda values: pa.array(values, arrow)
