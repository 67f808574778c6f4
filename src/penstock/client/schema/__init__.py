"""Schemas, records and their fields."""

from .field import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    String,
)
from .key_value import KeyValueSchema
from .record import Record
from .schema import (
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    BytesSchema,
    PrimitiveSchema,
    Schema,
    StringSchema,
)
from .structured import AvroSchema, JsonSchema, ProtobufNativeSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AutoProduceBytesSchema",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "KeyValueSchema",
    "Long",
    "Map",
    "Null",
    "PrimitiveSchema",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
