"""From a DataFrame's type to a schema for a topic that has none: Avro's definition, or a type without one."""

import re
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_AVRO: Final[dict[type[DataType], Any]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_PLAIN: Final[dict[type[DataType], SchemaType]] = {
    BooleanType: SchemaType.BOOLEAN,
    ByteType: SchemaType.INT8,
    ShortType: SchemaType.INT16,
    IntegerType: SchemaType.INT32,
    LongType: SchemaType.INT64,
    FloatType: SchemaType.FLOAT,
    DoubleType: SchemaType.DOUBLE,
    DateType: SchemaType.LOCAL_DATE,
    TimestampType: SchemaType.INSTANT,
    TimestampNTZType: SchemaType.LOCAL_DATE_TIME,
}


def avro_schema(kind: SchemaType, value: DataType, name: str = "Value") -> SchemaInfo:
    """An AVRO or JSON schema for a column. What may be null is null by default, so that it may be left out later.

    Raises PipelineError for a type, or a name, that Avro does not have.
    """
    definition = _avro(value, name, "value")
    return SchemaInfo(kind, msgspec.json.encode(definition), name.rpartition(".")[2])


def plain_schema(value: DataType) -> SchemaInfo | None:
    """The type without a definition for a column, None where there is none."""
    if isinstance(value, StringType):
        return STRING_SCHEMA
    found = _PLAIN.get(type(value))
    return None if found is None else SchemaInfo(found, name=found.name.title())


def _avro(value: DataType, name: str, path: str) -> Any:
    if isinstance(value, StructType):
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
    if isinstance(value, ArrayType):
        item = _avro(value.elementType, f"{name}_item", f"{path}[]")
        return {"type": "array", "items": ["null", item] if value.containsNull else item}
    if isinstance(value, MapType) and isinstance(value.keyType, StringType):
        item = _avro(value.valueType, f"{name}_item", f"{path}{{}}")
        return {"type": "map", "values": ["null", item] if value.valueContainsNull else item}
    if isinstance(value, DecimalType):
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": value.precision,
            "scale": value.scale,
        }
    found = _AVRO.get(type(value))
    if found is None:
        raise PipelineError(f"{path}: {value.simpleString()} has no type of Avro's; cast it")
    return found
