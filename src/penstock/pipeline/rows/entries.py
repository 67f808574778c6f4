"""Raw entries as they stream from a server, `application/vnd.penstock.entries`, and one entry opened.

A frame is: offset u64 | count u32 | entry id u64 | length u32 | entry, all big endian. The offset is that of
the entry's first message. Where a log has many ledgers, a frame of no messages says by its entry id in which ledger the
entries after it are.

The columnar reader in `rows` knows batches only. A message that was sent alone is therefore rewritten here as
a batch of one: the fields that it has in `MessageMetadata` are those of `SingleMessageMetadata` under other
numbers.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import read_varint, varint
from penstock.wire.batch import MESSAGES_MAX
from penstock.wire.compression import decompress
from penstock.wire.contents import unseal
from penstock.wire.metadata import schema_version_number

READ_BYTES: Final = 512 << 10  # one read; larger ones leave the caches
ENTRY_BYTES_MAX: Final = 256 << 20  # what claims more is no frame

_HEAD: Final = Struct(">QIQI")

_SIZE: Final = Struct(">I")
_LEDGER_MAX: Final = 2**63 - 1
_UINT64_MAX: Final = 2**64 - 1

# Fields of MessageMetadata that a message sent alone carries for itself, and their tags in a batch: properties,
# partition_key, ordering_key; event_time, partition_key_b64_encoded, null_value, null_partition_key.
_LONE_TEXTS: Final = {4: b"\x0a", 6: b"\x12", 18: b"\x3a"}
_LONE_NUMBERS: Final = {12: b"\x28", 17: b"\x30", 25: b"\x48", 30: b"\x50"}


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An entry with its place in the log; `ledger` is -1 where the log has one for all."""

    offset: int
    count: int
    entry_id: int
    data: bytes
    ledger: int = -1


def read_frames(read: Callable[[int], bytes]) -> Iterator[Frame]:
    """Yield the frames of a stream; `read(n)` returns at most n bytes, none at the end.

    Raises EOFError where the stream ends within a frame, ValueError where there is no frame.
    """
    buffer = b""
    at = 0
    ledger = -1
    size = _HEAD.size
    while True:
        while at + size <= len(buffer):
            offset, count, entry_id, length = _HEAD.unpack_from(buffer, at)
            if not count and not length and entry_id <= _LEDGER_MAX:
                ledger = entry_id
                at += size
                continue
            if length > ENTRY_BYTES_MAX or not count:
                raise ValueError("the server's answer is not a stream of entries")
            end = at + size + length
            if end > len(buffer):
                break
            yield Frame(offset, count, entry_id, buffer[at + size : end], ledger)
            at = end
        parts = [buffer[at:]]
        wanted = size
        if len(parts[0]) >= size:
            wanted += _HEAD.unpack_from(parts[0])[3]
        have = len(parts[0])
        while True:  # at least up to the end of the frame, so that a large one is not copied at each read
            block = read(READ_BYTES)
            if not block:
                if have:
                    raise EOFError("the stream of entries was cut short")
                return
            parts.append(block)
            have += len(block)
            if have >= wanted:
                break
        buffer, at = b"".join(parts), 0


class Opened(msgspec.Struct, gc=False):
    """An entry's metadata, as far as rows show it, and its batch."""

    producer: str
    sequence_id: int
    publish_time: int
    schema_version: int | None
    deliver_at: int
    count: int  # messages in `batch`
    lone_value: int  # where the one value begins in a batch of one made here, else -1
    batch: bytes


def open_entry(data: bytes) -> Opened:
    """Open an entry's bytes. Raises CHECKSUM or BAD_ENCODING.

    An encrypted entry or a chunk is one message whose payload is left as it is.
    """
    try:
        return _open(data)
    except (ValueError, IndexError) as error:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"an entry cannot be read: {error}") from None


def _open(data: bytes) -> Opened:
    data = unseal(data)
    end = 4 + int.from_bytes(data[:4], "big")
    if end > len(data):
        raise ValueError("its metadata is cut short")
    numbers, texts = _metadata(data, 4, end)
    payload = data[end:]
    producer, schema_version, encrypted = b"", None, False
    for number, text in texts:
        if number == 1:
            producer = text
        elif number == 16:
            schema_version = schema_version_number(text)
        elif number == 13:
            encrypted = True
    # Encrypted, or one chunk of a larger message: only the receiver can open it.
    sealed = encrypted or numbers.get(27, 1) > 1
    if not sealed and (codec := numbers.get(8, 0)):
        payload = decompress(codec, payload, numbers.get(9, 0))

    count = numbers.get(11, 0)
    lone_value = -1
    if sealed or 11 not in numbers:  # the number's presence, not its value, makes a batch
        own = _lone_metadata(numbers, texts, len(payload))
        lone_value = 4 + len(own)
        payload = b"".join((_SIZE.pack(len(own)), own, payload))
        count = 1
    elif not 0 < count <= MESSAGES_MAX:
        raise ValueError(f"a batch of {count} messages")
    return Opened(
        producer.decode(errors="replace"),
        numbers.get(2, 0),
        numbers.get(3, 0),
        schema_version,
        numbers.get(19, 0),
        count,
        lone_value,
        payload,
    )


def _metadata(data: bytes, at: int, end: int) -> tuple[dict[int, int], list[tuple[int, bytes]]]:
    """The fields of the metadata: the numbers, and the texts in their order."""
    numbers: dict[int, int] = {}
    texts: list[tuple[int, bytes]] = []
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            tag, at = read_varint(data, at - 1)
        kind = tag & 7
        if kind == 1 or kind == 5:
            at += 8 if kind == 1 else 4
            continue
        value = data[at]
        at += 1
        if value > 0x7F:  # as `read_varint`, without a call for each: an entry may hold but one message
            value &= 0x7F
            shift = 0
            byte = 0x80
            while byte > 0x7F:
                shift += 7
                if shift > 63:
                    raise ValueError("varint too long")
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
            value &= _UINT64_MAX
        if kind == 0:
            numbers[tag >> 3] = value
        elif kind == 2:
            texts.append((tag >> 3, data[at : at + value]))
            at += value
        else:
            raise ValueError(f"wire type {kind} in its metadata")
    if at != end:
        raise ValueError("its metadata is cut short")
    return numbers, texts


def _lone_metadata(numbers: dict[int, int], texts: list[tuple[int, bytes]], size: int) -> bytes:
    """What a message sent alone says of itself, as SingleMessageMetadata."""
    own: list[bytes] = []
    for number, text in texts:
        if number in _LONE_TEXTS:
            own += (_LONE_TEXTS[number], varint(len(text)), text)
    own += (b"\x18", varint(size))
    for number, tag in _LONE_NUMBERS.items():
        if number in numbers:
            own += (tag, varint(numbers[number]))
    return b"".join(own)
