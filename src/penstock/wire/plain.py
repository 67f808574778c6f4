"""The metadata of an entry that says nothing but whose it is and when it was published, read by hand.

    0a name | 10 sequence id | 18 publish time [| 48 size] [| 58 messages in the batch] [| 82 01 schema version]
    [| c0 01 highest sequence id]

Nearly all entries are like that, and protobuf takes longer for them than for all else of a delivery. What is anything else, in
any other order, or out of the usual bounds, is left to protobuf: the two never differ in what they read.
"""

from typing import Final, NamedTuple

from penstock.model.message_id import read_varint

from .metadata import ENTRIES_MAX, read_text, schema_version_number, signed
from .pulsar_pb2 import MessageMetadata

_PRODUCER: Final = 0x0A
_SEQUENCE_ID: Final = 0x10
_PUBLISH_TIME: Final = 0x18
_UNCOMPRESSED_SIZE: Final = 0x48
_BATCH_SIZE: Final = 0x58
_SCHEMA_VERSION: Final = b"\x82\x01\x08"  # of eight bytes
_HIGHEST_SEQUENCE_ID: Final = b"\xc0\x01"
_TIME_BYTES: Final = 6  # of the varint of a time between 1971 and 2109
_INT32_END: Final = 2**31
_VARINT_BYTES_MAX: Final = 9  # what is larger is negative to Pulsar's clients, or no varint to protobuf

# Producers and times come again from entry to entry; as they stand in the bytes.
_NAMES: Final[dict[bytes, str]] = {}
_TIMES: Final[dict[bytes, int]] = {}


class PlainMetadata(NamedTuple):
    """`batch_size` 0: a message that was sent alone. `schema_version` None: it has none."""

    producer_name: str
    sequence_id: int
    publish_time: int
    batch_size: int
    schema_version: int | None


def read_plain(body: bytes, at: int, until: int) -> PlainMetadata | None:
    """The metadata in `body[at:until]`; None for one that is to be read by protobuf."""
    try:
        if body[at] != _PRODUCER:
            return None
        start = at + 2
        at = start + body[at + 1]
        name = _NAMES.get(body[start:at]) or _read_name(body, start, at)
        if name is None or body[at] != _SEQUENCE_ID:
            return None
        sequence_id = body[at + 1]
        if sequence_id < 0x80:
            at += 2
        else:
            sequence_id, at = _read_varint(body, at + 1)
        if body[at] != _PUBLISH_TIME:
            return None
        at += 1
        publish_time = _TIMES.get(body[at : at + _TIME_BYTES])
        if publish_time is not None:
            at += _TIME_BYTES
        else:
            publish_time, at = _read_time(body, at)
        if at == until:
            return PlainMetadata(name, sequence_id, publish_time, 0, None)
        return _read_rest(name, sequence_id, publish_time, body, at, until)
    except (IndexError, ValueError):
        return None


def plain_part(metadata: MessageMetadata) -> PlainMetadata:
    """The same of metadata that says more. Raises BAD_ENCODING."""
    return PlainMetadata(
        read_text(metadata.producer_name),
        signed(metadata.sequence_id),
        signed(metadata.publish_time),
        metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0,
        schema_version_number(metadata.schema_version),
    )


def _read_name(body: bytes, start: int, end: int) -> str | None:
    if end - start >= 0x80 or end > len(body):
        return None
    try:
        data = body[start:end]
        name = data.decode()
    except UnicodeDecodeError:
        return None
    if len(_NAMES) >= ENTRIES_MAX:
        _NAMES.clear()
    _NAMES[data] = name
    return name


def _read_time(body: bytes, at: int) -> tuple[int, int]:
    time, end = _read_varint(body, at)
    if end - at == _TIME_BYTES:
        if len(_TIMES) >= ENTRIES_MAX:
            _TIMES.clear()
        _TIMES[body[at:end]] = time
    return time, end


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value, end = read_varint(body, at)
    if end - at > _VARINT_BYTES_MAX:
        raise ValueError("not for here")
    return value, end


def _read_rest(
    name: str, sequence_id: int, publish_time: int, body: bytes, at: int, until: int
) -> PlainMetadata | None:
    """What follows the publish time."""
    batch_size, version = 0, None
    if body[at] == _UNCOMPRESSED_SIZE:
        _, at = _read_varint(body, at + 1)
    if at < until and body[at] == _BATCH_SIZE:
        batch_size, at = _read_varint(body, at + 1)
        if not 0 < batch_size < _INT32_END:
            return None
    if body.startswith(_SCHEMA_VERSION, at):
        at += len(_SCHEMA_VERSION) + 8
        version = int.from_bytes(body[at - 8 : at], "big", signed=True)
    if body.startswith(_HIGHEST_SEQUENCE_ID, at):
        _, at = _read_varint(body, at + len(_HIGHEST_SEQUENCE_ID))
    return PlainMetadata(name, sequence_id, publish_time, batch_size, version) if at == until else None
