"""Schemas as a registry has them, and as messages name them. Schemas of other types than these three are not in the registry."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.codec.json_schema.pulsar import full_name, json_schema
from penstock.codec.proto.native import ProtoFile, to_proto
from penstock.codec.registered import schema_of
from penstock.model.schema import SchemaInfo, SchemaType

from .client import Definition

HELD: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE))


class Outgoing(msgspec.Struct, frozen=True):
    """A schema to be registered: `imports` are files that it uses, which are subjects of their own, each after its own imports."""

    definition: Definition
    record: str = ""  # its name, if it has one
    message: int = 0  # which of the file's messages is meant
    file: ProtoFile | None = None
    imports: tuple[ProtoFile, ...] = ()


def to_registry(schema: SchemaInfo) -> Outgoing | None:
    """A schema that was checked; None for one that a registry does not hold."""
    if schema.type is SchemaType.AVRO:
        text = schema.data.decode()
        return Outgoing(Definition("AVRO", text), _avro_name(msgspec.json.decode(text)))
    if schema.type is SchemaType.JSON:
        shape = json_schema(schema.data.decode())
        return Outgoing(Definition("JSON", shape), str(msgspec.json.decode(shape).get("title", "")))
    if schema.type is not SchemaType.PROTOBUF_NATIVE:
        return None
    try:
        proto = to_proto(schema.data)
    except ValueError:  # an edition
        return None
    *imports, file = proto.files
    return Outgoing(Definition("PROTOBUF", file.text), proto.root, proto.message, file, tuple(imports))


def of_registry(definition: Definition, imports: Mapping[str, str]) -> SchemaInfo:
    """The schema; `imports` are the texts it refers to. Raises BAD_VALUE_SCHEMA for what is not understood here."""
    return schema_of(definition.type, definition.text, imports)


def same_file(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether two PROTOBUF_NATIVE schemas are registered alike, as the same message."""
    a, b = to_registry(one), to_registry(other)
    return (
        a is not None
        and b is not None
        and (a.definition, a.record, a.imports)
        == (
            b.definition,
            b.record,
            b.imports,
        )
    )


def _avro_name(avro: Any) -> str:
    """The full name of a record, an enum or a fixed; empty for others."""
    if not isinstance(avro, dict) or not isinstance(avro.get("name"), str):
        return ""
    return full_name(avro["name"], avro.get("namespace") or "")
