"""The path and the query of an upgrade, as Pulsar reads them from their raw bytes.

    /ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}
    /ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}
    /ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}
    /ws/v3/consumer/{subscription}

Segments are decoded as Java's URLDecoder does (`+` is a space), after splitting: an encoded slash is part of
a name. Of a repeated parameter the first counts, unknown ones are ignored, and numbers are Java's.
"""

import re
from enum import Enum
from typing import Final, Literal, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_subscription

E = TypeVar("E", bound=Enum)
D = TypeVar("D")

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
Role = Literal["producer", "consumer", "reader"]

_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_SEGMENTS_TOPIC: Final = 8  # "", ws, v2, role, domain, tenant, namespace, topic


class Target(msgspec.Struct, frozen=True):
    """The target of a socket. `topic` is None in v3, whose query names the topics."""

    role: Role
    topic: TopicName | None
    subscription: str = ""


def parse_path(raw: bytes) -> Target:
    """Read a raw path; raises NOT_FOUND for an unknown endpoint, BAD_PARAMETER and INVALID_NAME."""
    parts = raw.split(b"/")
    role = parts[3].decode("latin-1") if len(parts) > 3 else ""
    match (bytes(parts[2]) if len(parts) > 2 else b"", role):
        case (b"v2", "producer" | "reader"):
            return Target("producer" if role == "producer" else "reader", _topic_alone(parts))
        case (b"v2", "consumer"):
            return _consumer(parts)
        case (b"v3", "consumer"):
            if len(parts) != 5:
                raise PenstockError(ErrorKind.BAD_PARAMETER, "Invalid topic name format")
            return Target("consumer", None, _subscription(parts[4]))
    raise PenstockError(ErrorKind.NOT_FOUND, "no such WebSocket endpoint")


def decode_segment(raw: bytes) -> str:
    """Java's URLDecoder over UTF-8; raises BAD_PARAMETER for broken escapes and bytes that are not UTF-8."""
    at = raw.find(b"%")
    while at >= 0:
        digits = raw[at + 1 : at + 3]
        if len(digits) != 2 or not _HEX.issuperset(digits):
            raise PenstockError(ErrorKind.BAD_PARAMETER, "URLDecoder: broken % escape in the path")
        at = raw.find(b"%", at + 3)
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the path is not UTF-8") from None


def _topic(parts: list[bytes]) -> TopicName:
    if len(parts) < _SEGMENTS_TOPIC:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Invalid topic name format")
    return TopicName.of(*(decode_segment(part) for part in parts[4:8]))


def _topic_alone(parts: list[bytes]) -> TopicName:
    # One slash more at the end is Pulsar's habit. What else follows is refused: Pulsar's versions differ in
    # whether it is part of the topic, so no client can mean it safely.
    if len(parts) > _SEGMENTS_TOPIC and parts[_SEGMENTS_TOPIC:] != [b""]:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Invalid topic name format: write / in a topic as %2F")
    return _topic(parts)


def _consumer(parts: list[bytes]) -> Target:
    topic = _topic(parts)
    if len(parts) != _SEGMENTS_TOPIC + 1:
        missing = len(parts) == _SEGMENTS_TOPIC
        text = "Empty subscription name" if missing else "Invalid topic name format"
        raise PenstockError(ErrorKind.BAD_PARAMETER, text)
    return Target("consumer", topic, _subscription(parts[_SEGMENTS_TOPIC]))


def _subscription(raw: bytes) -> str:
    name = decode_segment(raw)
    if not name.strip():
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Empty subscription name")
    return check_subscription(name)


def bad(text: str) -> PenstockError:
    """A parameter that cannot be: 400 on an upgrade."""
    return PenstockError(ErrorKind.BAD_PARAMETER, text)


class Query:
    """The parameters of one upgrade request."""

    def __init__(self, raw: bytes) -> None:
        self._values: dict[str, str] = {}
        for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
            self._values.setdefault(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The raw value, or None."""
        return self._values.get(name)

    def name(self, key: str) -> str:
        """A name that must not be blank; "" without one."""
        value = self._values.get(key)
        if value is None:
            return ""
        if not value.strip():
            raise bad(f"{key} cannot be blank")
        return value

    def flag(self, name: str) -> bool:
        """Java's parseBoolean: `true` in any case, everything else is false."""
        return self._values.get(name, "").lower() == "true"

    def integer(self, name: str, default: int, *, least: int = -_INT_MAX - 1) -> int:
        """Java's parseInt, and at least `least`."""
        return self._number(name, default, least, _INT_MAX)

    def long(self, name: str, default: int) -> int:
        """Java's parseLong."""
        return self._number(name, default, -_LONG_MAX - 1, _LONG_MAX)

    def _number(self, name: str, default: int, least: int, most: int) -> int:
        text = self._values.get(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text) or not -most - 1 <= int(text) <= most:
            raise bad(f'For input string: "{text[:80]}" ({name})')  # Pulsar's text, and which parameter it is
        value = int(text)
        if value < least:
            raise bad(f"{name} needs to be >= {least}")
        return value

    def choice(self, name: str, kind: type[E], default: D) -> E | D:
        """One of an enumeration, by its exact value."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return kind(text)
        except ValueError:
            raise bad(f"Invalid {name} {text[:80]}") from None
