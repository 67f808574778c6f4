"""`MessageMetadata`, in front of an entry's payload, written by hand.

That is several times faster than through message objects. Fields are written in the order of their numbers, so that the
bytes are those that protobuf itself would write.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Encryption, EncryptionKey, OutMessage
from penstock.model.message_id import run_varints, varint, varints

from .pulsar_pb2 import CompressionType, KeyValue, MessageMetadata

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=bytes | str)

ENTRIES_MAX: Final = 4096  # of a `Memo`
VALUE_BYTES_MAX: Final = 256  # longer ones are not cached: such names are rare, and may be an attacker's

_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(0x80))
_INT64: Final = range(-(2**63), 2**63)
_UINT64_MASK: Final = 2**64 - 1


class Memo(dict[K, V], Generic[K, V]):
    """A bounded memory of bytes or texts: `memo[key]` is `make(key)`; a hit costs what it costs in a dict.

    A full memory is emptied: that is rare and needs no bookkeeping on the way of a hit.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(value) <= VALUE_BYTES_MAX:
            if len(self) >= ENTRIES_MAX:
                self.clear()
            self[key] = value
        return value


def integer(value: int) -> bytes:
    """A varint; negative numbers take ten bytes, as Java's longs do. Raises BAD_ENCODING beyond 64 bits."""
    if value >= 0:
        if value < 0x80:
            return _ONE_BYTE[value]
        if value < 0x4000:
            return bytes((value & 0x7F | 0x80, value >> 7))
        if value < 0x20_0000:
            return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value not in _INT64:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"{value} does not fit into 64 bits")
    return varint(value & _UINT64_MASK)


def unsigned(value: int) -> bytes:
    """A varint of a uint64 field, such as an id that the peer chose; Java's negative longs wrap round."""
    return integer(value) if 0 <= value < 0x20_0000 else varint(value & _UINT64_MASK)


def sized(data: bytes) -> bytes:
    """Bytes with their length in front."""
    return integer(len(data)) + data


def text(value: str) -> bytes:
    """Text with its length in front. Raises BAD_ENCODING for lone surrogates."""
    try:
        return sized(value.encode())
    except UnicodeEncodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "a text that is not valid Unicode") from None


# A `KeyValue` up to its value: names of properties repeat.
_NAMES: Final[Memo[str, bytes]] = Memo(lambda name: b"\x0a" + text(name) + b"\x12")


# Of requests (PIP-371), whose timeouts are a few texts, the whole one.
_TIMEOUTS: Final[Memo[str, bytes]] = Memo(lambda value: _NAMES[REQUEST_TIMEOUT_PROPERTY] + text(value))


def properties(tag: bytes, values: Mapping[str, str]) -> bytes:
    """One `KeyValue` for each property."""
    out = b""
    for name, value in values.items():
        pair = _TIMEOUTS[value] if name == REQUEST_TIMEOUT_PROPERTY else _NAMES[name] + text(value)
        out += tag + integer(len(pair)) + pair
    return out


def schema_version_bytes(version: int) -> bytes:
    """A schema version as Pulsar writes it: a big-endian long. Raises BAD_ENCODING beyond 64 bits."""
    if version not in _INT64:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"schema version {version} does not fit into 64 bits")
    return version.to_bytes(8, "big", signed=True)


def schema_version_number(data: bytes) -> int | None:
    """A schema version as a number, None when it is empty. Raises BAD_ENCODING beyond 64 bits."""
    if not data:
        return None
    if len(data) > 8:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"a schema version of {len(data)} bytes")
    return int.from_bytes(data, "big", signed=len(data) == 8)


def signed(value: int) -> int:
    """What protobuf's uint64 is to Pulsar's clients: a Java long."""
    return value - 2**64 if value >= 2**63 else value


def read_text(value: object) -> str:
    """A string field of a parsed message: protobuf hands out bytes when it is not UTF-8."""
    if not isinstance(value, str):
        raise PenstockError(ErrorKind.BAD_ENCODING, "a text that is not valid UTF-8")
    return value


def read_properties(pairs: Sequence[KeyValue]) -> dict[str, str]:
    """The properties of a parsed message. Raises BAD_ENCODING."""
    return {read_text(pair.key): read_text(pair.value) for pair in pairs}


_PRODUCER: Final[Memo[str, bytes]] = Memo(lambda name: b"\x0a" + text(name) + b"\x10")
_PUBLISH_TIME: Final[Memo[int, bytes]] = Memo(lambda time: b"\x18" + integer(time))
_SCHEMA_VERSION: Final[Memo[int | None, bytes]] = Memo(
    lambda version: b"" if version is None else b"\x82\x01" + sized(schema_version_bytes(version))
)


def plain_metadata(producer: str, sequence_id: int, publish_time: int, schema_version: int | None) -> bytes:
    """The metadata of a message that is nothing but a payload."""
    begin = _PRODUCER[producer] + integer(sequence_id)
    return begin + _PUBLISH_TIME[publish_time] + _SCHEMA_VERSION[schema_version]


def plain_metadata_of_each(
    count: int, producer: str, sequence_id: int, publish_time: int, schema_version: int | None
) -> list[bytes]:
    """The same of `count` messages, with sequence ids from `sequence_id` on."""
    begin = _PRODUCER[producer]
    end = _PUBLISH_TIME[publish_time] + _SCHEMA_VERSION[schema_version]
    if sequence_id >= 0 and sequence_id + count in _INT64:
        return [begin + number + end for number in run_varints(sequence_id, count)]
    return [begin + integer(number) + end for number in range(sequence_id, sequence_id + count)]


def metadata_of_each(messages: Sequence[OutMessage], producer: str, publish_time: int) -> list[bytes]:
    """The metadata of messages that are sent alone, each with its own sequence id and schema version."""
    begin, time = _PRODUCER[producer], _PUBLISH_TIME[publish_time]
    ids = [message.sequence_id or 0 for message in messages]
    numbers = varints(ids) if min(ids) >= 0 and max(ids) in _INT64 else map(integer, ids)
    made: list[bytes] = []
    for message, number in zip(messages, numbers, strict=True):
        version = _SCHEMA_VERSION[message.schema_version]
        if (
            message.key is None
            and message.ordering_key is None
            and message.encryption is None
            and not message.properties
            and not message.event_time
            and not message.deliver_at
            and not message.replicate_to
            and not message.null_value
        ):
            made.append(begin + number + time + version)
        else:
            made.append(_with_options(message, begin + number + time, version))
    return made


def message_metadata(
    message: OutMessage, producer: str, sequence_id: int, publish_time: int, schema_version: int | None
) -> bytes:
    """The metadata of a message that is sent alone."""
    begin = _PRODUCER[producer] + integer(sequence_id) + _PUBLISH_TIME[publish_time]
    return _with_options(message, begin, _SCHEMA_VERSION[schema_version])


def _with_options(message: OutMessage, begin: bytes, version: bytes) -> bytes:
    key = message.key
    out = [begin]
    if message.properties:
        out.append(properties(b"\x22", message.properties))
    if key is not None:
        out.append(b"\x32" + text(key))
    if message.replicate_to:
        out.append(_replicate_to(message.replicate_to))
    encryption = message.encryption
    if encryption is not None and encryption.compression != "NONE":
        out.append(b"\x40" + integer(CompressionType.Value(encryption.compression)))
        out.append(b"\x48" + integer(encryption.uncompressed_size))
    if message.event_time:
        out.append(b"\x60" + integer(message.event_time))
    if encryption is not None:
        out.append(_encryption(encryption))
    out.append(version)
    if key is not None and message.key_is_base64:
        out.append(b"\x88\x01\x01")
    if message.ordering_key is not None:
        out.append(b"\x92\x01" + sized(message.ordering_key))
    if message.deliver_at:
        out.append(b"\x98\x01" + integer(message.deliver_at))
    if message.null_value:
        out.append(b"\xc8\x01\x01")
    return b"".join(out)


def batch_metadata(
    count: int,
    producer: str,
    sequence_id: int,
    highest_sequence_id: int,
    publish_time: int,
    schema_version: int | None,
    messages: Sequence[OutMessage] = (),
) -> bytes:
    """The metadata of a batch.

    Keys that all `messages` share are put here as well: a broker that does not open the batch needs them to
    keep the order per key. The clusters that a message replicates to are said per batch, by its first message.
    """
    out = [_PRODUCER[producer], integer(sequence_id), _PUBLISH_TIME[publish_time]]
    key, key_is_base64, ordering_key = _shared_keys(messages)
    if key is not None:
        out.append(b"\x32" + text(key))
    if messages and messages[0].replicate_to:
        out.append(_replicate_to(messages[0].replicate_to))
    out.append(b"\x58" + integer(count))
    out.append(_SCHEMA_VERSION[schema_version])
    if key_is_base64:
        out.append(b"\x88\x01\x01")
    if ordering_key is not None:
        out.append(b"\x92\x01" + sized(ordering_key))
    out.append(b"\xc0\x01" + integer(highest_sequence_id))
    return b"".join(out)


def parse_metadata(data: bytes) -> MessageMetadata:
    """Read the metadata. Raises BAD_ENCODING."""
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(data)
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry's metadata cannot be read") from None
    if not metadata.IsInitialized():
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry's metadata lacks a required field")
    return metadata


def read_encryption(metadata: MessageMetadata) -> Encryption:
    """What the metadata of an encrypted entry says of how it was encrypted. Raises BAD_ENCODING."""
    return Encryption(
        keys=tuple(
            EncryptionKey(read_text(key.key), key.value, read_properties(key.metadata))
            for key in metadata.encryption_keys
        ),
        param=metadata.encryption_param,
        algorithm=read_text(metadata.encryption_algo),
        compression=CompressionType.Name(metadata.compression),
        uncompressed_size=metadata.uncompressed_size,
        batch_size=metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0,
    )


def _encryption(encryption: Encryption) -> bytes:
    """The fields 13 to 15: how a payload was encrypted (PIP-4, PIP-290). Raises BAD_ENCODING."""
    out = b""
    for key in encryption.keys:
        one = b"\x0a" + text(key.name) + b"\x12" + sized(key.value) + properties(b"\x1a", key.metadata)
        out += b"\x6a" + sized(one)
    if encryption.algorithm:
        out += b"\x72" + text(encryption.algorithm)
    return out + b"\x7a" + sized(encryption.param)


def _replicate_to(clusters: Sequence[str]) -> bytes:
    return b"".join(b"\x3a" + text(cluster) for cluster in clusters)


def _shared_keys(messages: Sequence[OutMessage]) -> tuple[str | None, bool, bytes | None]:
    if not messages:
        return None, False, None
    first = messages[0]
    key, key_is_base64, ordering_key = first.key, first.key_is_base64, first.ordering_key
    for message in messages:
        if message.key != key or message.key_is_base64 != key_is_base64:
            key = None
        if message.ordering_key != ordering_key:
            ordering_key = None
        if key is None and ordering_key is None:
            break
    return key, key is not None and key_is_base64, ordering_key
