"""A consumer's frame to a command (Pulsar's WebSocket API; seek and cumulative acknowledgement are ours: docs/websocket.md)."""

from binascii import a2b_base64
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.broker.producer import Reply
from penstock.model.errors import PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId

from .frames import ConsumerCommand, as_text, decode_base64, read_command


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """One message, or with `cumulative` everything up to it."""

    message_id: MessageId
    cumulative: bool = False


class Answering(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge a request with the reply to it (PIP-371)."""

    message_id: MessageId
    content: bytes
    is_error: bool
    schema_version: int | None = None


class Negative(msgspec.Struct, frozen=True, gc=False):
    """Give a message back, to be delivered again."""

    message_id: MessageId


class Permit(msgspec.Struct, frozen=True, gc=False):
    """Pull mode: take so many more."""

    count: int


class Seek(msgspec.Struct, frozen=True, gc=False):
    """Go on after a message, or with the first one published at or after a time (ms)."""

    message_id: MessageId | None
    timestamp: int


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """Delete the subscription; the socket stays."""


class AskEndOfTopic(msgspec.Struct, frozen=True, gc=False):
    """Is the topic terminated, and everything of it delivered?"""


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A frame that is not a command. Pulsar closes the socket; with a context it is answered instead.

    `result` is Pulsar's number for the error.
    """

    error: str
    result: int = 3


_COLONS: Final = (b":", b": ")
_COMMAS: Final = (b",", b", ")

Command = Acknowledge | Answering | Negative | Permit | Seek | Unsubscribe | AskEndOfTopic | Broken


def parse_plain(frame: bytes, known: dict[bytes, MessageId]) -> MessageId | Reply | None:
    """What most frames are: {"messageId":"…"}, or with a "replyContent" behind it. None for any other.

    `known` are the ids that were given out, which need no escapes; one that comes back is taken out of it.
    """
    parts = frame.split(b'"', 8)
    count = len(parts)
    if count < 5 or parts[0] != b"{" or parts[1] != b"messageId" or parts[2] not in _COLONS:
        return None
    text = parts[3]
    if count == 5:
        return known.pop(text, None) if parts[4] == b"}" else None
    if (
        count != 9
        or parts[4] not in _COMMAS
        or parts[5] != b"replyContent"
        or parts[6] not in _COLONS
        or parts[8] != b"}"
        or text not in known
    ):
        return None
    try:
        content = a2b_base64(parts[7], strict_mode=True)
    except ValueError:
        return None
    return Reply(known.pop(text), content, False)


def parse_command(frame: bytes, known: Mapping[bytes, MessageId] | None = None) -> tuple[Command, str | None]:
    """The command and its context. Never raises. `known` spares the parsing of ids that were given out."""
    try:
        command = read_command(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Broken(str(error)), None
    context = None if command.context is None else as_text(command.context)
    try:
        return _command(command, known or {}), context
    except PenstockError as error:
        return Broken(error.message), context


def _command(frame: ConsumerCommand, known: Mapping[bytes, MessageId]) -> Command:
    match frame.type:
        case "permit":
            if frame.permit_messages is None:
                return Broken("permitMessages is missing")
            return Permit(frame.permit_messages)
        case "negativeAcknowledge":
            message_id = _message_id(frame, known)
            return Broken("messageId is missing") if message_id is None else Negative(message_id)
        case "isEndOfTopic":
            return AskEndOfTopic()
        case "unsubscribe":
            return Unsubscribe()
        case "seek":
            message_id = _message_id(frame, known)
            if (message_id is None) == (frame.timestamp is None):
                return Broken("seek needs either messageId or timestamp")
            if frame.timestamp is not None and frame.timestamp < 0:
                return Broken("timestamp must not be negative")
            return Seek(message_id, frame.timestamp or 0)
    # Any other type, and none, acknowledges: clients written for Pulsar rely on it.
    message_id = _message_id(frame, known)
    if message_id is None or message_id in (EARLIEST, LATEST):
        return Broken("messageId is missing")
    ack_type = frame.ack_type
    if ack_type is None or ack_type in ("Individual", "individual"):
        if frame.reply_content is not None:
            return _answering(frame, message_id)
        return Acknowledge(message_id)
    if ack_type in ("Cumulative", "cumulative"):
        if frame.reply_content is not None:
            return Broken("a reply is for one message: ackType cannot be Cumulative")
        return Acknowledge(message_id, cumulative=True)
    return Broken("ackType must be Individual or Cumulative")


def _answering(frame: ConsumerCommand, message_id: MessageId) -> Command:
    try:
        content = decode_base64(as_text(frame.reply_content) or "")
    except ValueError as error:
        return Broken(f"Invalid Base64 replyContent error={error}", 7)
    return Answering(message_id, content, bool(frame.is_error_result), frame.schema_version)


def _message_id(frame: ConsumerCommand, known: Mapping[bytes, MessageId]) -> MessageId | None:
    text = frame.message_id
    if text is None:
        return None
    if type(text) is not str:
        text = as_text(text) or ""
    return known.get(text.encode()) or MessageId.parse(text)
