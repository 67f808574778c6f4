"""Columns to payloads by one schema; every encoder takes a column without nulls."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.codec import Codec, codec_for, key_value_parts
from penstock.codec.avro.types import Type
from penstock.codec.definition import avro_type
from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType
from penstock.pipeline.decode.cast import compile_cast
from penstock.pipeline.decode.primitives import SPARK, layout_of
from penstock.pipeline.decode.shapes import arrow_type, spark_type
from penstock.pipeline.errors import PipelineError, as_pipeline_errors

from .avro import compile_write
from .binary import Encode, join, nullable, of_matrix, sizes


@as_pipeline_errors()
def encoder_for(schema: SchemaInfo, arrow: pa.DataType, path: str = "value") -> Encode:
    """The encoder of a column. Raises PipelineError where the schema cannot take it."""
    if schema.type in SPARK:
        return _primitive(schema, arrow, path)
    if schema.type is SchemaType.AVRO:
        kind = avro_type(schema)
        assert kind is not None
        spark_type(kind)  # refuses a type that contains itself
        return compile_write(kind, arrow, path)
    if schema.type is SchemaType.KEY_VALUE:
        return pair_encoder(schema, arrow)[0]
    if schema.type is SchemaType.JSON:
        kind = avro_type(schema)
        if kind is not None:
            compile_write(kind, arrow, path)  # which columns fit is the same for both
        return _each(codec_for(schema), arrow, kind)
    return _each(codec_for(schema), arrow, None)


def pair_encoder(schema: SchemaInfo, arrow: pa.DataType) -> tuple[Encode, Encode | None]:
    """The payloads of struct<key, value>, and the messages' keys where these are apart."""
    key, value, encoding = key_value_parts(schema)
    if not pa.types.is_struct(arrow) or {field.name for field in arrow} != {"key", "value"}:
        raise PipelineError("value: a key/value schema takes a struct of key and value")
    keys = nullable(encoder_for(key, arrow.field("key").type, "value.key"))
    values = nullable(encoder_for(value, arrow.field("value").type, "value.value"))
    if encoding is KeyValueEncoding.SEPARATED:
        return lambda column: values(_child(column, "value")), lambda column: keys(_child(column, "key"))
    return lambda column: join(
        [*_part(keys(_child(column, "key"))), *_part(values(_child(column, "value")))]
    ), None


def _child(column: pa.Array, name: str) -> pa.Array:
    return column.flatten()[column.type.get_field_index(name)]


def _part(encoded: pa.Array) -> list[pa.Array]:
    lengths = np.where(np.asarray(encoded.is_valid()), sizes(encoded), -1)
    return [of_matrix(lengths.astype(">i4").view(np.uint8).reshape(-1, 4)), encoded]


def _primitive(schema: SchemaInfo, arrow: pa.DataType, path: str) -> Encode:
    wanted = arrow_type(SPARK[schema.type])
    try:
        cast = compile_cast(arrow, wanted, path)
    except PipelineError:
        raise PipelineError(f"{path}: {arrow} cannot be written as {schema.type.name}") from None
    if schema.type in (SchemaType.NONE, SchemaType.BYTES):
        return cast
    if (
        schema.type is SchemaType.STRING
        and (schema.properties.get("__charset") or "UTF-8").upper() == "UTF-8"
    ):
        return lambda column: cast(column).cast(pa.binary())
    dtype = layout_of(schema.type)
    if dtype is None:
        each = _each(codec_for(schema), wanted, None)
        return lambda column: each(cast(column))

    def numbers(column: pa.Array) -> pa.Array:
        values = cast(column).to_numpy(zero_copy_only=False).astype(dtype)
        return of_matrix(values.view(np.uint8).reshape(-1, dtype.itemsize))

    return numbers


def _each(codec: Codec, arrow: pa.DataType, kind: Type | None) -> Encode:
    """Row by row, by the codec."""
    native = _native(arrow)

    def encode(column: pa.Array) -> pa.Array:
        with as_pipeline_errors():
            return pa.array([codec.encode_native(native(item)) for item in column.to_pylist()], pa.binary())

    return encode


def _native(arrow: pa.DataType) -> Callable[[Any], Any]:
    """From Arrow's Python values to those that codecs take: maps as dicts, whole decimals as ints, a union's
    struct of members as the one that is there."""
    if pa.types.is_map(arrow):
        item = _native(arrow.item_type)
        return lambda v: None if v is None else {key: item(value) for key, value in v}
    if pa.types.is_list(arrow):
        element = _native(arrow.value_type)
        return lambda v: None if v is None else [element(value) for value in v]
    if pa.types.is_struct(arrow):
        fields = [(field.name, _native(field.type)) for field in arrow]
        if fields and [name for name, _ in fields] == [f"member{n}" for n in range(len(fields))]:
            return lambda v: v and next((f(v[name]) for name, f in fields if v[name] is not None), None)
        return lambda v: None if v is None else {name: f(v[name]) for name, f in fields}
    if pa.types.is_decimal(arrow) and arrow.scale == 0:
        return lambda v: int(v) if isinstance(v, Decimal) else v
    return lambda v: v
