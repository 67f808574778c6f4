"""The payload of a batch and the messages in it.

    [ metadata size u32 | SingleMessageMetadata | payload ] * n

A message that is nothing but a payload has a metadata of one field, its payload's size; such messages are
the fast path both ways, as gateways mostly carry them.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, TypeGuard, cast

from google.protobuf.message import DecodeError

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage, Payloads
from penstock.model.message_id import read_varint

from .metadata import ENTRIES_MAX, Memo, integer, properties, sized, text
from .pulsar_pb2 import SingleMessageMetadata

# What an entry may unfold to is bounded by this: a compressed one could hold a million times what it weighs.
MESSAGES_MAX: Final = 1 << 17
MESSAGE_BYTES_MIN: Final = 6  # the size of the metadata, and the metadata's one required field

_PAYLOAD_SIZE_TAG: Final = 0x18
_PAYLOAD_SIZE: Final[Memo[int, bytes]] = Memo(lambda size: b"\x18" + integer(size))


def _plain_head(size: int) -> bytes:
    metadata = _PAYLOAD_SIZE[size]
    return len(metadata).to_bytes(4, "big") + metadata


_PLAIN_HEAD: Final[Memo[int, bytes]] = Memo(_plain_head)
_TEXT_HEAD: Final[Memo[int, str]] = Memo(lambda size: _plain_head(size).decode("latin-1"))
_SIZE_OF_HEAD: Final[dict[bytes, int]] = {}  # the same the other way round, of heads met
_NO_HEAD: Final = b"none"  # no message begins so: its metadata would be of 1.7 GiB


def pack_plain(payloads: Payloads) -> bytes:
    """The batch of messages that are nothing but payloads."""
    sizes = list(map(len, payloads))
    size = sizes[0] if sizes.count(sizes[0]) == len(sizes) else -1
    if _are_texts(payloads):
        # Joined as texts and encoded at once, each byte of a head being a character.
        if size >= 0:
            mark = _TEXT_HEAD[size]
            return (mark + mark.join(payloads)).encode("latin-1")
        marks = map(_TEXT_HEAD.__getitem__, sizes)
        return "".join(chain.from_iterable(zip(marks, payloads, strict=True))).encode("latin-1")
    parts = cast(Sequence[bytes], payloads)
    if size >= 0:
        head = _PLAIN_HEAD[size]
        return head + head.join(parts)
    heads = map(_PLAIN_HEAD.__getitem__, sizes)
    return b"".join(chain.from_iterable(zip(heads, parts, strict=True)))


def _are_texts(payloads: Payloads) -> TypeGuard[Sequence[str]]:
    return isinstance(payloads[0], str)


def pack(messages: Sequence[OutMessage], sequence_ids: Sequence[int]) -> bytes:
    """The batch of `messages`, each with its sequence id."""
    out: list[bytes] = []
    for message, sequence_id in zip(messages, sequence_ids, strict=True):
        key = message.key
        head = properties(b"\x0a", message.properties) if message.properties else b""
        if key is not None:
            head += b"\x12" + text(key)
        head += _PAYLOAD_SIZE[len(message.payload)]
        if message.event_time:
            head += b"\x28" + integer(message.event_time)
        if key is not None and message.key_is_base64:
            head += b"\x30\x01"
        if message.ordering_key is not None:
            head += b"\x3a" + sized(message.ordering_key)
        head += b"\x40" + integer(sequence_id)
        if message.null_value:
            head += b"\x48\x01"
        out += (len(head).to_bytes(4, "big"), head, message.payload)
    return b"".join(out)


def split(payload: bytes, count: int) -> list[tuple[SingleMessageMetadata | None, bytes]]:
    """The metadata and payload of each of `count` messages; None for one that is nothing but a payload.

    Raises BAD_ENCODING if there are fewer. Time and memory depend on the actual bytes, not on claimed sizes.
    """
    if not 1 <= count <= MESSAGES_MAX:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"a batch of {count} messages")
    out: list[tuple[SingleMessageMetadata | None, bytes]] = []
    end = len(payload)
    at = size = 0
    head = _NO_HEAD
    for _ in range(count):
        single = None
        if payload.startswith(head, at):  # plain, and of the same size as the one before
            at += len(head)
        else:
            if at + MESSAGE_BYTES_MIN > end:
                raise _cut_short()
            head = payload[at : at + 4 + payload[at + 3]]
            known = _SIZE_OF_HEAD.get(head)
            if known is not None:
                size = known
                at += len(head)
            else:
                single, size, at = _read_head(payload, at)
                if single is None:
                    _remember(head, size)
                else:
                    head = _NO_HEAD
        until = at + size
        if until > end:
            raise _cut_short()
        out.append((single, payload[at:until]))
        at = until
    return out


def split_plain(payload: bytes, count: int) -> list[bytes] | None:
    """The payloads of `count` messages that are nothing else; None if one is more, or `split` would raise."""
    if not 1 <= count <= MESSAGES_MAX:
        return None
    out: list[bytes] = []
    at = size = 0
    head = _NO_HEAD
    try:
        for _ in range(count):
            if not payload.startswith(head, at):
                head = payload[at : at + 4 + payload[at + 3]]
                known = _SIZE_OF_HEAD.get(head)
                if known is None:
                    single, known, _ = _read_head(payload, at)
                    if single is not None:
                        return None
                    _remember(head, known)
                size = known
            at += len(head)
            out.append(payload[at : at + size])
            at += size
    except (PenstockError, IndexError):
        return None
    return out if at <= len(payload) else None


def _remember(head: bytes, size: int) -> None:
    if len(_SIZE_OF_HEAD) >= ENTRIES_MAX:
        _SIZE_OF_HEAD.clear()
    _SIZE_OF_HEAD[head] = size


def _read_head(payload: bytes, at: int) -> tuple[SingleMessageMetadata | None, int, int]:
    """A message's metadata (None for a plain one), its payload's size, and its start."""
    start = at + 4
    until = start + int.from_bytes(payload[at:start], "big")
    if start >= len(payload) or until > len(payload):
        raise _cut_short()
    if payload[start] == _PAYLOAD_SIZE_TAG and until - start <= 6:
        try:
            size, stop = read_varint(payload, start + 1)
        except ValueError:
            raise _cut_short() from None
        if stop == until and size < 2**31:
            return None, size, until
    single = SingleMessageMetadata()
    try:
        single.ParseFromString(payload[start:until])
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "a message's metadata cannot be read") from None
    if not single.IsInitialized() or single.payload_size < 0:
        raise PenstockError(ErrorKind.BAD_ENCODING, "a message's metadata is not complete")
    return single, single.payload_size, until


def _cut_short() -> PenstockError:
    return PenstockError(ErrorKind.BAD_ENCODING, "the batch is shorter than it claims")
