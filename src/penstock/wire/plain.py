"""The metadata of an entry that says nothing but whose it is, when it was published, and properties of its message, read
by hand.

    0a name | 10 sequence id | 18 publish time {| 22 property} [| 48 size] [| 58 messages in the batch]
    [| 82 01 schema version] [| c0 01 highest sequence id]

    property: 0a name | 12 value

Nearly all entries are like that, and protobuf takes longer for them than for all else of a delivery. What is anything else, in
any other order, or out of the usual bounds, is left to protobuf: the two never differ in what they read.
"""

from typing import Final

from penstock.model.message_id import read_positive

from .metadata import ENTRIES_MAX, read_properties, read_text, schema_version_number, signed
from .pulsar_pb2 import MessageMetadata

_PRODUCER: Final = 0x0A
_SEQUENCE_ID: Final = 0x10
_PUBLISH_TIME: Final = 0x18
_PROPERTY: Final = 0x22
_PROPERTY_NAME: Final = 0x0A
_PROPERTY_VALUE: Final = 0x12
_UNCOMPRESSED_SIZE: Final = 0x48
_BATCH_SIZE: Final = 0x58
_SCHEMA_VERSION: Final = b"\x82\x01\x08"  # of eight bytes
_HIGHEST_SEQUENCE_ID: Final = b"\xc0\x01"
_TIME_BYTES: Final = 6  # of the varint of a time between 1971 and 2109
_INT32_END: Final = 2**31
_REST_BYTES_MAX: Final = 64  # of cached ones: longer properties rarely repeat

# Producers and times repeat from entry to entry; as encoded bytes.
_NAMES: Final[dict[bytes, str]] = {}
_TIMES: Final[dict[bytes, int]] = {}
_PROPERTIES: Final[dict[bytes, tuple[str, str]]] = {}


# The producer's name, the sequence id, the publish time, the number of messages in the batch (0: one that was sent alone),
# the schema version (None: it has none), and the properties of a message that was sent alone (None: none). A tuple, as every
# entry that is delivered has one.
PlainMetadata = tuple[str, int, int, int, int | None, dict[str, str] | None]
_Rest = tuple[int, int, int | None, dict[str, str] | None]  # the same from the publish time on

# Messages that were sent alone by one producer mostly differ only in the bytes before it, within a millisecond.
_RESTS: Final[dict[bytes, _Rest]] = {}


def read_plain(body: bytes, at: int, until: int) -> PlainMetadata | None:
    """The metadata in `body[at:until]`; None for one that protobuf must read."""
    try:
        if body[at] != _PRODUCER:
            return None
        start = at + 2
        at = start + body[at + 1]
        name = _NAMES.get(body[start:at])
        if name is None:
            name = _read_name(body, start, at)
        if body[at] != _SEQUENCE_ID:
            return None
        sequence_id, at = read_positive(body, at + 1)
        following = body[at:until]
        rest = _RESTS.get(following)
        if rest is None:
            rest = _read_rest(body, at, until)
            if rest is None:
                return None
            if rest[1] == 0 and len(following) <= _REST_BYTES_MAX:
                if len(_RESTS) >= ENTRIES_MAX:
                    _RESTS.clear()
                _RESTS[following] = rest
        return name, sequence_id, *rest
    except (IndexError, ValueError):
        return None


def plain_part(metadata: MessageMetadata) -> PlainMetadata:
    """The same of metadata that says more. Raises BAD_ENCODING."""
    batch_size = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0
    return (
        read_text(metadata.producer_name),
        signed(metadata.sequence_id),
        signed(metadata.publish_time),
        batch_size,
        schema_version_number(metadata.schema_version),
        None if batch_size or not metadata.properties else read_properties(metadata.properties),
    )


def _read_name(body: bytes, start: int, end: int) -> str:
    if end - start >= 0x80 or end > len(body):
        raise ValueError("a length of more than one byte")
    data = body[start:end]
    name = data.decode()  # UnicodeDecodeError is a ValueError
    if len(_NAMES) >= ENTRIES_MAX:
        _NAMES.clear()
    _NAMES[data] = name
    return name


def _read_time(body: bytes, at: int) -> tuple[int, int]:
    time, end = read_positive(body, at)
    if end - at == _TIME_BYTES:
        if len(_TIMES) >= ENTRIES_MAX:
            _TIMES.clear()
        _TIMES[body[at:end]] = time
    return time, end


def _read_rest(body: bytes, at: int, until: int) -> _Rest | None:
    """What follows the sequence id."""
    if body[at] != _PUBLISH_TIME:
        return None
    at += 1
    publish_time = _TIMES.get(body[at : at + _TIME_BYTES])
    if publish_time is not None:
        at += _TIME_BYTES
    else:
        publish_time, at = _read_time(body, at)
    if at == until:
        return publish_time, 0, None, None
    batch_size, version = 0, None
    properties: dict[str, str] | None = None
    if body[at] == _PROPERTY:
        properties = {}
        while at < until and body[at] == _PROPERTY:
            start, at = at + 2, at + 2 + body[at + 1]
            pair = _PROPERTIES.get(body[start:at]) or _read_property(body[start:at])
            properties[pair[0]] = pair[1]
    if at < until and body[at] == _UNCOMPRESSED_SIZE:
        _, at = read_positive(body, at + 1)
    if at < until and body[at] == _BATCH_SIZE:
        batch_size, at = read_positive(body, at + 1)
        if properties is not None or not 0 < batch_size < _INT32_END:
            return None
    if body.startswith(_SCHEMA_VERSION, at):
        at += len(_SCHEMA_VERSION) + 8
        version = int.from_bytes(body[at - 8 : at], "big", signed=True)
    if body.startswith(_HIGHEST_SEQUENCE_ID, at):
        _, at = read_positive(body, at + len(_HIGHEST_SEQUENCE_ID))
    if at != until:
        return None
    return publish_time, batch_size, version, properties


def _read_property(pair: bytes) -> tuple[str, str]:
    """Raises IndexError or ValueError for what protobuf has to read: longer than 127 bytes, or written otherwise."""
    value_at = 2 + pair[1]
    start = value_at + 2
    if (
        len(pair) >= 0x80
        or pair[0] != _PROPERTY_NAME
        or pair[value_at] != _PROPERTY_VALUE
        or start + pair[value_at + 1] != len(pair)
    ):
        raise ValueError("not for here")
    made = pair[2:value_at].decode(), pair[start:].decode()
    if len(_PROPERTIES) >= ENTRIES_MAX:
        _PROPERTIES.clear()
    _PROPERTIES[pair] = made
    return made
