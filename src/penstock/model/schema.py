"""Schemas as values: Pulsar's types, a schema, a version of it, and the strategies (PIP-43; docs/schemas.md)."""

from enum import Enum, IntEnum
from typing import Final

import msgspec


class SchemaType(IntEnum):
    """Pulsar's schema types by their number on REST and admin (the wire's differ above 20)."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    BYTES = -1
    AUTO_CONSUME = -3
    AUTO_PUBLISH = -4

    @classmethod
    def named(cls, name: str) -> "SchemaType | None":
        """The type of that name, whatever its case, or None."""
        return cls.__members__.get(name.upper().replace("-", "_"))

    @property
    def has_definition(self) -> bool:
        """Whether schemas of this type carry a definition in addition to their type."""
        return self in _DEFINED


_DEFINED: Final = frozenset(
    (
        SchemaType.JSON,
        SchemaType.PROTOBUF,
        SchemaType.AVRO,
        SchemaType.KEY_VALUE,
        SchemaType.PROTOBUF_NATIVE,
    )
)


class KeyValueEncoding(Enum):
    """The place of the key of a key/value message: the payload, or the message's key (docs/schemas.md)."""

    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


class SchemaInfo(msgspec.Struct, frozen=True):
    """A schema: `data` is its definition's bytes, empty for the primitives."""

    type: SchemaType
    data: bytes = b""
    name: str = ""
    properties: dict[str, str] = {}


class SchemaVersion(msgspec.Struct, frozen=True):
    """A schema as registered for a topic: versions count from 0; `deleted` marks a tombstone."""

    version: int
    schema: SchemaInfo
    timestamp: int = 0
    deleted: bool = False


class Compatibility(Enum):
    """When a new schema may follow the ones before (docs/schemas.md)."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


STRING_SCHEMA: Final = SchemaInfo(SchemaType.STRING, name="String", properties={"__charset": "UTF-8"})
BYTES_SCHEMA: Final = SchemaInfo(SchemaType.BYTES, name="Bytes")
# JSON of any shape. A Pulsar cluster refuses an empty definition, and Java's AUTO_CONSUME cannot read one.
ANY_JSON: Final = SchemaInfo(SchemaType.JSON, b'{"type":"record","name":"Any","fields":[]}', name="Any")
