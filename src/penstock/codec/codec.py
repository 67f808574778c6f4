"""What every codec does: values to payloads and back, by one schema."""

from collections.abc import Sequence
from typing import Any, Literal

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo

Part = Literal["value", "key"]


class Codec:
    """Values to payloads and back by `schema`, as Pulsar's clients store them.

    A value is plain (what JSON holds: bytes are base64 text, dates and decimals are text) or native (bytes,
    datetime, Decimal, UUID …). `part` names the root of the paths in messages. Every method raises BAD_MESSAGE
    for a value or a payload that does not fit.
    """

    def __init__(self, schema: SchemaInfo, part: Part = "value") -> None:
        self.schema = schema
        self.part = part

    def encode(self, value: Any) -> bytes:
        """Encode a plain value."""
        raise NotImplementedError

    def decode(self, payload: bytes) -> Any:
        """Decode to a plain value."""
        raise NotImplementedError

    def decode_all(self, payloads: Sequence[bytes]) -> list[Any]:
        """Decode each to a plain value; raises if any does not fit."""
        return list(map(self.decode, payloads))

    def encode_native(self, value: Any) -> bytes:
        """Encode a native value."""
        raise NotImplementedError

    def decode_native(self, payload: bytes) -> Any:
        """Decode to a native value."""
        raise NotImplementedError

    def check(self, payload: bytes) -> None:
        """Check bytes that are said to be encoded by the schema already."""
        self.decode(payload)


def bad_message(text: str) -> PenstockError:
    """A value or payload that does not fit its schema."""
    return PenstockError(ErrorKind.BAD_MESSAGE, text)


def bad_schema(part: Part, text: str) -> PenstockError:
    """A schema that cannot be used."""
    return PenstockError(ErrorKind.BAD_KEY_SCHEMA if part == "key" else ErrorKind.BAD_VALUE_SCHEMA, text)
