"""Embedded formats of keys and values, and the media types that name them."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.protocols.confluent.content import not_acceptable
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.media import choose_type, weights


class Format(StrEnum):
    """How keys and values are written in JSON."""

    BINARY = "binary"
    JSON = "json"
    AVRO = "avro"
    JSONSCHEMA = "jsonschema"
    PROTOBUF = "protobuf"

    @property
    def schema_type(self) -> str | None:
        """The registry's type of its schemas; None for a format without schemas."""
        return _SCHEMA_TYPES.get(self)

    @property
    def media(self) -> tuple[str, ...]:
        """Its media types, the newest first."""
        name = f"application/vnd.kafka.{self}"
        return f"{name}.v2+json", f"{name}.v1+json", f"{name}+json"


_SCHEMA_TYPES: Final[Mapping[Format, str]] = {
    Format.AVRO: "AVRO",
    Format.JSONSCHEMA: "JSON",
    Format.PROTOBUF: "PROTOBUF",
}

V2: Final = "application/vnd.kafka.v2+json"
MEDIA: Final = (V2, "application/json", "application/vnd.kafka.v1+json", "application/vnd.kafka+json")
_EMBEDDED: Final[Mapping[str, Format]] = {name: each for each in Format for name in each.media}
TAKEN: Final = (*MEDIA, "application/octet-stream", *_EMBEDDED)

_FORMAT_DIFFERS: Final = ConfluentCode(406, 40601)


def format_of(media: str | None) -> Format:
    """The format that the media type of a body names: binary unless it names another."""
    return _EMBEDDED.get(media or "", Format.BINARY)


def accepted(exchange: Exchange, offered: Sequence[str] = (*MEDIA, *_EMBEDDED)) -> str | None:
    """The media type of an answer; None if none is accepted."""
    accept = exchange.headers.get("accept")
    return choose_type(None if accept is None else re.sub(r"\*/json\b", "*/*", accept), offered)


def accepted_records(exchange: Exchange, format: Format) -> str:
    """The media type of an answer with records of an instance's format. Raises ConfluentError."""
    kind = accepted(exchange, (*format.media, *MEDIA))
    if kind is None:
        if any(name in _EMBEDDED for name in weights(exchange.headers.get("accept", ""))):
            raise ConfluentError(
                _FORMAT_DIFFERS,
                "The requested embedded data format does not match the deserializer for this consumer instance",
            )
        raise not_acceptable()
    return kind
