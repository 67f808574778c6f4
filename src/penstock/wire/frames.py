"""Frames of Pulsar's binary protocol: bytes to commands and back, with no I/O (Pulsar's binary protocol).

    total size u32 | command size u32 | BaseCommand                                                  a command
    total size u32 | command size u32 | BaseCommand | (0x0e02 | size u32 | BrokerEntryMetadata)? | entry
                                                                                   SEND and MESSAGE

The total counts all that follows it. An entry is as `model.entry` describes it, with or without its checksum.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from google.protobuf.message import DecodeError, Message

from penstock.model.errors import ErrorKind, PenstockError

from .pulsar_pb2 import BaseCommand, BrokerEntryMetadata

MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024  # Pulsar's maxMessageSize; CONNECTED may say otherwise
OVERHEAD_BYTES: Final = 10 * 1024  # what a frame may add to the largest message, as in Pulsar
COMMAND_BYTES_MAX: Final = 2 * 1024 * 1024  # a schema and an acknowledgement of many ids are the largest

_BROKER_MAGIC: Final = b"\x0e\x02"
_SIZES: Final = 8

# The name of the field that holds a command, by its type: they have the same number.
FIELD: Final[dict[int, str]] = {
    number: name.lower() for name, number in BaseCommand.Type.items() if name.lower() != "type"
}
_WITH_ENTRY: Final = frozenset((BaseCommand.SEND, BaseCommand.MESSAGE))
_MAY_LACK: Final = frozenset((BaseCommand.PING, BaseCommand.PONG))  # they have no fields


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A command, with the entry that followed it and what the broker says of that (SEND, MESSAGE)."""

    command: BaseCommand
    entry: bytes = b""
    broker: BrokerEntryMetadata | None = None

    @property
    def type(self) -> int:
        return self.command.type


class FrameDecoder:
    """Bytes as they arrive to frames. `frame_size_max` bounds a frame without its first four bytes.

    What is held back is less than one frame.
    """

    def __init__(self, frame_size_max: int = MESSAGE_BYTES_MAX + OVERHEAD_BYTES) -> None:
        self.frame_size_max = frame_size_max
        self._held = bytearray()
        self._wanted = 4  # bytes to be held before it is worth looking again
        self.begun = 0  # frames that came in parts

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes, in order; exhaust it before the next call.

        Raises TOO_LARGE and BAD_ENCODING after the frames before: nothing that follows can be understood.
        """
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return
            data = bytes(self._held)
            self._held.clear()
        at, end = 0, len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if size > self.frame_size_max:
                raise PenstockError(
                    ErrorKind.TOO_LARGE, f"a frame of {size} bytes; the most is {self.frame_size_max}"
                )
            if end - at - 4 < size:
                self._wanted = 4 + size
                break
            frame = _decode(data, at + 4, at + 4 + size)
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
        """Let go of what is held: nothing follows."""
        self._held = bytearray()
        self._wanted = 4


def decode(data: bytes) -> Frame:
    """One whole frame, its total size included. Raises BAD_ENCODING."""
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(data) - 4:
        raise PenstockError(ErrorKind.BAD_ENCODING, "not exactly one frame")
    return _decode(data, 4, len(data))


def encode(command: BaseCommand) -> bytes:
    """The frame of a command that carries no entry."""
    body = command.SerializeToString()
    size = len(body)
    return b"".join(((size + 4).to_bytes(4, "big"), size.to_bytes(4, "big"), body))


def entry_head(command: bytes, entry_size: int, broker: bytes = b"") -> bytes:
    """What stands before an entry of `entry_size` bytes: the sizes, the serialized command, the broker's part."""
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


def has_texts(message: Message) -> bool:
    """Whether all texts of a command are texts: of those that are no UTF-8, protobuf gives the bytes."""
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


def _decode(data: bytes, at: int, end: int) -> Frame:
    size = int.from_bytes(data[at : at + 4], "big")
    start = at + 4
    stop = start + size
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
