"""Frames of Pulsar's binary protocol: bytes to commands and back, with no I/O (Pulsar's binary protocol).

    total size u32 | command size u32 | BaseCommand                                                  a command
    total size u32 | command size u32 | BaseCommand | (0x0e02 | size u32 | BrokerEntryMetadata)? | entry
                                                                                   SEND and MESSAGE

The total counts all that follows it. An entry is as `model.entry` describes it, with or without its checksum.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError, Message

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .metadata import integer, sized, unsigned
from .pulsar_pb2 import BaseCommand, BrokerEntryMetadata
from .receipts import RECEIPT, Receipt, read_receipt, receipt_of

MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024  # Pulsar's maxMessageSize; CONNECTED may say otherwise
OVERHEAD_BYTES: Final = 10 * 1024  # what a frame may add to the largest message, as in Pulsar
COMMAND_BYTES_MAX: Final = 2 * 1024 * 1024  # a schema and an acknowledgement of many ids are the largest

_BROKER_MAGIC: Final = b"\x0e\x02"
_WORD_BITS: Final = 64
_WORD: Final = (1 << _WORD_BITS) - 1

# The name of the field that holds a command, by its type: they have the same number.
FIELD: Final[dict[int, str]] = {
    number: name.lower() for name, number in BaseCommand.Type.items() if name.lower() != "type"
}
Body = Message  # the fields of a command
_WITH_ENTRY: Final = frozenset((BaseCommand.SEND, BaseCommand.MESSAGE))
_TYPE_OF: Final[dict[str, int]] = {
    field.message_type.name: field.number for field in BaseCommand.DESCRIPTOR.fields if field.message_type
}
_RECEIPT_COMMAND: Final = BaseCommand(type=BaseCommand.SEND_RECEIPT)
_MAY_LACK: Final = frozenset((BaseCommand.PING, BaseCommand.PONG))  # they have no fields


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A command, with the entry that followed it and what the broker says of that (SEND, MESSAGE).

    A decoder of `receipts` sets `receipt` of every SEND_RECEIPT; the command may be empty then.
    """

    command: BaseCommand
    entry: bytes = b""
    broker: BrokerEntryMetadata | None = None
    receipt: Receipt | None = None

    @property
    def type(self) -> int:
        return self.command.type


class FrameDecoder:
    """Bytes as they arrive to frames. `frame_size_max` bounds a frame without its first four bytes.

    Less than one frame is held back. `receipts`: the peer is a broker, which sends many of them.
    """

    def __init__(
        self, frame_size_max: int = MESSAGE_BYTES_MAX + OVERHEAD_BYTES, *, receipts: bool = False
    ) -> None:
        self.frame_size_max = frame_size_max
        self._receipts = receipts
        self._held = bytearray()
        self._wanted = 4  # bytes to be held before it is worth looking again
        self.begun = 0  # frames that came in parts

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, in order; exhaust it before the next call.

        Raises TOO_LARGE and BAD_ENCODING after the frames before: nothing that follows can be understood.
        """
        at = 0
        if self._held:
            missing = self._wanted - len(self._held)
            if len(data) < missing:
                self._held += data
                return
            if self._wanted == 4:  # the size itself came in parts
                data = bytes(self._held) + data
                self._held.clear()
            else:
                self._held += memoryview(data)[:missing]
                held, self._held, at = bytes(self._held), bytearray(), missing
                yield _decode(held, 4, len(held), self._receipts)
        end = len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if size > self.frame_size_max:
                raise PenstockError(
                    ErrorKind.TOO_LARGE, f"a frame of {size} bytes; the most is {self.frame_size_max}"
                )
            if end - at - 4 < size:
                self._wanted = 4 + size
                break
            frame = _decode(data, at + 4, at + 4 + size, self._receipts)
            at += 4 + size
            yield frame
        else:
            self._wanted = 4
        if at < end:
            self._held += memoryview(data)[at:]
            self.begun += 1

    @property
    def empty(self) -> bool:
        """Whether the bytes so far end with a frame."""
        return not self._held

    @property
    def held(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._held)

    def clear(self) -> None:
        """Drop held bytes: nothing follows."""
        self._held = bytearray()
        self._wanted = 4


def decode(data: bytes) -> Frame:
    """One whole frame, its total size included. Raises BAD_ENCODING."""
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(data) - 4:
        raise PenstockError(ErrorKind.BAD_ENCODING, "not exactly one frame")
    return _decode(data, 4, len(data))


def command_of(body: Body) -> BaseCommand:
    """The command that has `body`, such as a `CommandSuccess`, for its fields."""
    number = _TYPE_OF[body.DESCRIPTOR.name]
    fields: dict[str, Any] = {"type": number, FIELD[number]: body}
    return BaseCommand(**fields)


def encode(command: BaseCommand) -> bytes:
    """The frame of a command that carries no entry."""
    return _frame(command.SerializeToString())


def _frame(command: bytes) -> bytes:
    size = len(command)
    return b"".join(((size + 4).to_bytes(4, "big"), size.to_bytes(4, "big"), command))


def entry_head(command: bytes, entry_size: int, broker: bytes = b"") -> bytes:
    """The bytes before an entry of `entry_size` bytes: the sizes, the serialized command, the broker's part."""
    size = len(command)
    return b"".join(
        (
            (4 + size + len(broker) + entry_size).to_bytes(4, "big"),
            size.to_bytes(4, "big"),
            command,
            broker,
        )
    )


def encode_with_entry(command: BaseCommand, entry: bytes, broker: bytes = b"") -> tuple[bytes, bytes]:
    """The frame of SEND or MESSAGE in two pieces, so that the entry is not copied."""
    return entry_head(command.SerializeToString(), len(entry), broker), entry


def broker_part(index: int, timestamp: int | None = None) -> bytes:
    """What a broker says of an entry: the offset of its last message, and when it came."""
    body = BrokerEntryMetadata(broker_timestamp=timestamp, index=index).SerializeToString()
    return b"".join((_BROKER_MAGIC, len(body).to_bytes(4, "big"), body))


def send_receipt(producer_id: int, sequence_id: int, message_id: MessageId, highest: int) -> bytes:
    """The frame of SEND_RECEIPT; `highest` is the entry's highest sequence id, 0 if it has only one.

    This one and `message_head` are sent for every entry, so they are written by hand; the bytes are protobuf's own.
    """
    inner = b"\x08" + unsigned(producer_id) + b"\x10" + unsigned(sequence_id)
    inner += b"\x1a" + sized(message_id.to_bytes())
    if highest:
        inner += b"\x20" + unsigned(highest)
    return _frame(b"\x08\x07\x3a" + sized(inner))


def message_head(
    consumer_id: int,
    message_id: MessageId,
    entry_size: int,
    *,
    redeliveries: int = 0,
    ack_set: Sequence[int] = (),
    epoch: int | None = None,
    broker: bytes = b"",
) -> bytes:
    """The bytes before the entry in the frame of MESSAGE."""
    inner = b"\x08" + unsigned(consumer_id) + b"\x12" + sized(message_id.to_bytes())
    if redeliveries:
        inner += b"\x18" + integer(redeliveries)
    for word in ack_set:
        inner += b"\x20" + integer(word)
    if epoch is not None:
        inner += b"\x28" + unsigned(epoch)
    return entry_head(b"\x08\x09\x4a" + sized(inner), entry_size, broker)


def ack_set_of(mask: int) -> list[int]:
    """A bit for each message as 64-bit words, the lowest first, signed as Java's longs are."""
    words: list[int] = []
    while mask:
        word = mask & _WORD
        words.append(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)
        mask >>= _WORD_BITS
    return words


def mask_of(ack_set: Sequence[int]) -> int:
    """The bits of an acknowledgement set, as one number."""
    mask = 0
    for at, word in enumerate(ack_set):
        mask |= (word & _WORD) << (at * _WORD_BITS)
    return mask


def has_texts(message: Message) -> bool:
    """Whether all texts of a command are valid: of invalid UTF-8, protobuf gives the bytes."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if isinstance(value, bytes) or (
                not isinstance(value, str) and any(isinstance(each, bytes) for each in value)
            ):
                return False
        elif field.type == field.TYPE_MESSAGE:
            inner = (value,) if isinstance(value, Message) else value
            if not all(has_texts(each) for each in inner):
                return False
    return True


def _decode(data: bytes, at: int, end: int, receipts: bool = False) -> Frame:
    size = int.from_bytes(data[at : at + 4], "big")
    start = at + 4
    stop = start + size
    if receipts and stop == end and data.startswith(RECEIPT, start):
        receipt = read_receipt(data, start, stop)
        if receipt is not None:
            return Frame(_RECEIPT_COMMAND, receipt=receipt)
    if end - at < 4 or stop > end:
        raise PenstockError(ErrorKind.BAD_ENCODING, "a command is longer than its frame")
    if size > COMMAND_BYTES_MAX:
        raise PenstockError(
            ErrorKind.TOO_LARGE, f"a command of {size} bytes; the most is {COMMAND_BYTES_MAX}"
        )
    command = BaseCommand()
    try:
        command.ParseFromString(data[start:stop])
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "a command cannot be read") from None
    if not command.IsInitialized():
        raise PenstockError(ErrorKind.BAD_ENCODING, "a command is unknown, or lacks a required field")
    kind = command.type
    if not (kind in _MAY_LACK or command.HasField(FIELD[kind])):
        raise PenstockError(ErrorKind.BAD_ENCODING, f"a command of type {kind} without its fields")
    if kind not in _WITH_ENTRY:
        if receipts and kind == BaseCommand.SEND_RECEIPT:
            return Frame(command, receipt=receipt_of(command.send_receipt))
        return Frame(command)
    broker = None
    if data.startswith(_BROKER_MAGIC, stop, end):
        broker, stop = _broker(data, stop + 2, end)
    return Frame(command, data[stop:end], broker)


def _broker(data: bytes, at: int, end: int) -> tuple[BrokerEntryMetadata, int]:
    start = at + 4
    stop = start + int.from_bytes(data[at:start], "big")
    if start > end or stop > end:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the broker's metadata is longer than its frame")
    broker = BrokerEntryMetadata()
    try:
        broker.ParseFromString(data[start:stop])
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the broker's metadata cannot be read") from None
    return broker, stop
