"""How a column `value` is written into a topic: by which registered schema, or one made from the column's type.

Planned once, on the driver and before anything is written; the plan can be pickled and compiles where it is used.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from penstock.codec import Codec, codec_for, key_value_parts
from penstock.codec.avro.types import Named, Type
from penstock.codec.definition import avro_type
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import STRING_SCHEMA, KeyValueEncoding, SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import SPARK, compile_cast, layout_of
from penstock.pipeline.decode.shapes import arrow_type, spark_type
from penstock.pipeline.errors import PipelineError, as_pipeline_errors
from penstock.pipeline.http.calls import Caller
from penstock.pipeline.http.schemas import all_versions, register

from .avro import compile_write
from .binary import Encode, join, nullable, of_matrix, sizes

OPTION: Final = "value.encode"

_TYPES: Final = {
    "avro": (SchemaType.AVRO,),
    "json": (SchemaType.JSON,),
    "protobuf": (SchemaType.PROTOBUF_NATIVE, SchemaType.PROTOBUF),
}

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_AVRO: Final[dict[type[t.DataType], Any]] = {
    t.BooleanType: "boolean",
    t.ByteType: "int",
    t.ShortType: "int",
    t.IntegerType: "int",
    t.LongType: "long",
    t.FloatType: "float",
    t.DoubleType: "double",
    t.StringType: "string",
    t.BinaryType: "bytes",
    t.DateType: {"type": "int", "logicalType": "date"},
    t.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    t.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_PLAIN: Final = {
    type(SPARK[kind]): kind
    for kind in (
        *(
            SchemaType.BOOLEAN,
            SchemaType.INT8,
            SchemaType.INT16,
            SchemaType.INT32,
            SchemaType.INT64,
            SchemaType.FLOAT,
        ),
        *(SchemaType.DOUBLE, SchemaType.LOCAL_DATE, SchemaType.INSTANT, SchemaType.LOCAL_DATE_TIME),
    )
}


class Encoding(msgspec.Struct, dict=True):
    """By `schema` and the version that it has for the topic."""

    schema: SchemaInfo
    schema_version: int

    def encode(self, column: pa.Array) -> pa.Array:
        """Payloads, null for nulls of the column. Raises PipelineError for a value that does not fit."""
        return self._compiled(column.type)[0](column)

    def keys(self, column: pa.Array) -> pa.Array | None:
        """The messages' keys, if the schema stores them there: key/value, SEPARATED. Else None."""
        keys = self._compiled(column.type)[1]
        return None if keys is None else keys(column)

    @property
    def has_keys(self) -> bool:
        """Whether the schema encodes keys outside the payloads (SEPARATED)."""
        if self.schema.type is not SchemaType.KEY_VALUE:
            return False
        return key_value_parts(self.schema)[2] is KeyValueEncoding.SEPARATED

    def _compiled(self, arrow: pa.DataType) -> Any:
        compiled = self.__dict__.setdefault("_encoders", {})
        key = str(arrow)
        if key not in compiled:
            if self.schema.type is SchemaType.KEY_VALUE:
                values, keys = pair_encoder(self.schema, arrow)
                separated = keys is not None
                compiled[key] = (values if separated else nullable(values), keys)
            else:
                compiled[key] = (nullable(encoder_for(self.schema, arrow)), None)
        return compiled[key]

    def __reduce__(self) -> Any:
        return Encoding, (self.schema, self.schema_version)


def plan_encoding(how: str, value: t.DataType, topic: TopicName | str, client: Caller) -> Encoding | None:
    """How a column of type `value` is written into `topic`; registers a schema if there is none that takes it.

    None if bytes and text go as they are. `how` is the option's value. Raises PipelineError in one sentence,
    before anything is written.
    """
    name = str(TopicName.parse(topic).base if isinstance(topic, str) else topic.base)
    if isinstance(value, t.BinaryType) and how in ("auto", "none"):
        return None
    if isinstance(value, t.BinaryType):
        raise PipelineError(
            f"option {OPTION}: column value is binary, which is encoded already; use auto or none"
        )
    if how == "none":
        if not isinstance(value, t.StringType):
            raise PipelineError(f"option {OPTION}: none needs a column value of type binary or string")
        return None
    versions = all_versions(client, name)
    version = max(versions, default=None)
    texts_known = version is not None and versions[version].type is SchemaType.STRING
    if isinstance(value, t.StringType) and how == "auto" and not texts_known:
        return None
    if version is not None:
        return _by_registered(how, value, name, version, versions[version], client)
    schema = _inferred(how, value)
    return Encoding(schema, _register(client, name, schema))


def _by_registered(
    how: str, value: t.DataType, topic: str, version: int, schema: SchemaInfo, client: Caller
) -> Encoding:
    wanted = _TYPES.get(how, (schema.type,))
    if schema.type not in wanted:
        raise PipelineError(
            f"option {OPTION}: {topic} has a schema of type {schema.type.name}, not {wanted[0].name}"
        )
    try:
        encoder_for(schema, arrow_type(value))
    except PipelineError as error:
        why = error.message
    else:
        return Encoding(schema, version)
    if how not in ("avro", "json"):
        raise PipelineError(f"column value does not fit schema version {version} of {topic}: {why}")
    kind = avro_type(schema)
    name = kind.name if isinstance(kind, Named) else "Value"
    new = avro_schema(schema.type, value, name)
    return Encoding(new, _register(client, topic, new, why))


def _inferred(how: str, value: t.DataType) -> SchemaInfo:
    if how == "protobuf":
        raise PipelineError(
            f"option {OPTION}: protobuf needs a registered schema, as field numbers are not known from columns"
        )
    if how == "json":
        return avro_schema(SchemaType.JSON, value)
    plain = plain_schema(value) if how == "auto" else None
    return plain or avro_schema(SchemaType.AVRO, value)


def _register(client: Caller, topic: str, schema: SchemaInfo, before: str = "") -> int:
    try:
        return register(client, topic, schema)
    except PenstockError as error:
        if error.retriable or error.kind in (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN):
            raise
        also = f" (the newest one does not take the column: {before})" if before else ""
        raise PipelineError(
            f"option {OPTION}: {topic} refuses the schema of column value: {error.message}{also}", error.kind
        ) from None


def avro_schema(kind: SchemaType, value: t.DataType, name: str = "Value") -> SchemaInfo:
    """An AVRO or JSON schema for a column. What may be null is null by default, so that it may be left out later.

    Raises PipelineError for a type, or a name, that Avro does not have.
    """
    definition = _avro(value, name, "value")
    return SchemaInfo(kind, msgspec.json.encode(definition), name.rpartition(".")[2])


def plain_schema(value: t.DataType) -> SchemaInfo | None:
    """The type without a definition for a column, None if there is none."""
    if isinstance(value, t.StringType):
        return STRING_SCHEMA
    found = _PLAIN.get(type(value))
    return None if found is None else SchemaInfo(found, name=found.name.title())


def _avro(value: t.DataType, name: str, path: str) -> Any:
    if isinstance(value, t.StructType):
        fields = []
        for field in value.fields:
            if not _NAME.fullmatch(field.name):
                raise PipelineError(
                    f"{path}: column {field.name!r} has a name that Avro does not allow; rename it to letters, digits"
                    " and _"
                )
            kind = _avro(field.dataType, f"{name}_{field.name}", f"{path}.{field.name}")
            fields.append(
                {"name": field.name, "type": ["null", kind], "default": None}
                if field.nullable
                else {"name": field.name, "type": kind}
            )
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(value, t.ArrayType):
        item = _avro(value.elementType, f"{name}_item", f"{path}[]")
        return {"type": "array", "items": ["null", item] if value.containsNull else item}
    if isinstance(value, t.MapType) and isinstance(value.keyType, t.StringType):
        item = _avro(value.valueType, f"{name}_item", f"{path}{{}}")
        return {"type": "map", "values": ["null", item] if value.valueContainsNull else item}
    if isinstance(value, t.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": value.precision, "scale": value.scale}
    found = _AVRO.get(type(value))
    if found is None:
        raise PipelineError(f"{path}: {value.simpleString()} has no type of Avro's; cast it")
    return found


@as_pipeline_errors()
def encoder_for(schema: SchemaInfo, arrow: pa.DataType, path: str = "value") -> Encode:
    """The encoder of a column. Raises PipelineError if the schema cannot take it."""
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
    """The payloads of struct<key, value>, and the messages' keys if these are separate."""
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
