"""What a record says of its message in headers: properties under their own names, and the rest as `penstock-…`.

| header | value |
| --- | --- |
| `penstock-event-time`, `penstock-deliver-at` | ms since the epoch, decimal |
| `penstock-schema-version` | decimal; `none`: the message has none, though its value begins like one with a schema |
| `penstock-sequence-id` | decimal |
| `penstock-producer` | the producer's name |
| `penstock-ordering-key` | the ordering key's bytes |
| `penstock-replicate-to` | a cluster; one header for each |
| `penstock-key` | `base64`: the key was given in base64; `text`: so, but it was none, and is stored as it came |
| `penstock-entry` | Pulsar's MessageMetadata of an entry that is kept as it is: the value is its payload |
| `penstock-reply-to`, `penstock-correlation-id` | of a request: the address of its reply, and its number there (`replies`) |
| `penstock-property-…` | a property whose own name begins with `penstock-` |
| `penstock-version` | the version of all these headers; missing: 1 |

A record of an unknown version is delivered as a plain record: all its headers are properties.

Headers of other producers are properties: one without a value is empty, one that is not UTF-8 is shown in base64, and of several
with one name the last counts.
"""

import logging
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Final

from penstock.engines.shared.replies import CORRELATION_ID, REPLY_TO
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import MESSAGES, VERSION, version_of
from penstock.model.headers import headers_of
from penstock.model.message import OutMessage
from penstock.wire.metadata import Memo

from .driver.record import Header

log = logging.getLogger(__name__)

OURS: Final = "penstock-"
ENTRY: Final = "penstock-entry"
KEY: Final = "penstock-key"
KEY_BASE64: Final = b"base64"
KEY_TEXT: Final = b"text"
_EVENT_TIME: Final = "penstock-event-time"
_DELIVER_AT: Final = "penstock-deliver-at"
SCHEMA_VERSION: Final = "penstock-schema-version"
UNVERSIONED: Final = (SCHEMA_VERSION, b"none")  # of a value without a schema that looks as if it had one
_SEQUENCE_ID: Final = "penstock-sequence-id"
_PRODUCER: Final = "penstock-producer"
_ORDERING_KEY: Final = "penstock-ordering-key"
_REPLICATE_TO: Final = "penstock-replicate-to"
_PROPERTY: Final = "penstock-property-"

# Properties that are separate headers: those of a request for its repliers.
_REQUESTS: Final = frozenset((REPLY_TO, CORRELATION_ID))

_REPORTED_MAX: Final = 16  # unknown versions that are logged; any producer may name one
_reported: Final[set[bytes]] = set()

_INT64: Final = range(-(2**63), 2**63)
_DIGITS_MAX: Final = 20
_NAMES: Final[Memo[str, str]] = Memo(
    lambda name: _PROPERTY + name if name.startswith(OURS) and name not in _REQUESTS else name
)


class Said:
    """The contents of the headers of a record: the message without key and value, and further fields."""

    __slots__ = ("entry", "key_form", "message", "producer")

    def __init__(self) -> None:
        self.message = OutMessage(payload=b"")
        self.producer = ""
        self.key_form: bytes | None = None
        self.entry: bytes | None = None


def write_headers(message: OutMessage, producer: str, *, numbered: bool) -> list[Header]:
    """The headers of a message, but for its schema; with its producer's name and (`numbered`) sequence id, if they are kept.

    Raises BAD_ENCODING for a text that has no bytes.
    """
    headers: list[Header] = []
    if message.properties:
        headers += [(_NAMES[name], value) for name, value in headers_of(message.properties)]
    if message.event_time:
        headers.append((_EVENT_TIME, b"%d" % message.event_time))
    if message.deliver_at:
        headers.append((_DELIVER_AT, b"%d" % message.deliver_at))
    if message.ordering_key is not None:
        headers.append((_ORDERING_KEY, message.ordering_key))
    if message.replicate_to:
        headers += [(_REPLICATE_TO, cluster.encode()) for cluster in message.replicate_to]
    if producer:
        headers.append((_PRODUCER, producer.encode()))
    if numbered and message.sequence_id is not None:
        headers.append((_SEQUENCE_ID, b"%d" % message.sequence_id))
    return headers


def schema_header(version: int) -> list[Header]:
    """The headers of a message that has a schema version and nothing else."""
    return [(SCHEMA_VERSION, b"%d" % version)]


def read_properties(headers: Sequence[Header]) -> dict[str, str] | None:
    """The properties that headers are; None if one of them may say something else."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(OURS):
            return None
        found[name] = _text(value)
    return found


def properties_and_version(headers: Sequence[Header]) -> tuple[dict[str, str], int | None] | None:
    """The properties that headers are, and the version of a schema; None if they may say something else."""
    version = None
    own = [(name, value) for name, value in headers if name.startswith(OURS)]
    if own:
        name, value = own[-1]
        if len(own) > 1 or name != SCHEMA_VERSION or value is None or not value.isdigit() or len(value) > 15:
            return None
        version, headers = int(value), [one for one in headers if one[0] != name]
    return read_properties(headers) or {}, version


def read_headers(headers: Sequence[Header]) -> Said:
    """What headers say; never fails."""
    said, others = split_headers(headers)
    if others:
        said.message.properties = {name: _text(value) for name, value in others}
    return said


def split_headers(headers: Sequence[Header]) -> tuple[Said, list[Header]]:
    """What our headers say, and the headers that are properties, under their own names; never fails."""
    said = Said()
    others: list[Header] = []
    known = _is_known(version_of(headers))
    for name, value in headers:
        if known and name.startswith(OURS):
            read = _READ.get(name)
            try:
                if read is not None and value is not None:
                    read(said, value)
                    continue
            except ValueError:
                pass  # another program uses our names: then it is a property
            else:
                name = name.removeprefix(_PROPERTY)
        others.append((name, value))
    return said, others


def _is_known(version: bytes | None) -> bool:
    if version is None:
        return True
    try:
        MESSAGES.check(version, VERSION)
    except PenstockError as error:
        if version not in _reported and len(_reported) < _REPORTED_MAX:  # not with every message
            _reported.add(version)
            log.error("messages are delivered as plain records", extra={"reason": error.message})
        return False
    return True


def _text(value: bytes | None) -> str:
    if not value:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


def _number(value: bytes) -> int:
    if len(value) > _DIGITS_MAX or not value.removeprefix(b"-").isdigit() or int(value) not in _INT64:
        raise ValueError("no number")
    return int(value)


def _positive(value: bytes) -> int:
    number = _number(value)
    if number <= 0:
        raise ValueError("no time")
    return number


def _key_form(value: bytes) -> bytes:
    if value not in (KEY_BASE64, KEY_TEXT):
        raise ValueError("not ours")
    return value


def _replicate_to(said: Said, value: bytes) -> None:
    clusters = said.message.replicate_to or []
    said.message.replicate_to = [*clusters, value.decode()]


def _of_message(field: str, convert: Callable[[bytes], object]) -> Callable[[Said, bytes], None]:
    return lambda said, value: setattr(said.message, field, convert(value))


def _of_record(field: str, convert: Callable[[bytes], object]) -> Callable[[Said, bytes], None]:
    return lambda said, value: setattr(said, field, convert(value))


_READ: Final[dict[str, Callable[[Said, bytes], None]]] = {
    _EVENT_TIME: _of_message("event_time", _number),
    _DELIVER_AT: _of_message("deliver_at", _positive),
    SCHEMA_VERSION: _of_message(
        "schema_version", lambda value: None if value == UNVERSIONED[1] else _number(value)
    ),
    _SEQUENCE_ID: _of_message("sequence_id", _number),
    _PRODUCER: _of_record("producer", bytes.decode),
    _ORDERING_KEY: _of_message("ordering_key", bytes),
    _REPLICATE_TO: _replicate_to,
    KEY: _of_record("key_form", _key_form),
    ENTRY: _of_record("entry", bytes),
    VERSION: lambda said, value: None,  # `read_headers` has checked it
}


def no_bytes() -> PenstockError:
    """The error of a text that is not valid Unicode."""
    return PenstockError(ErrorKind.BAD_ENCODING, "a text that is not valid Unicode")
