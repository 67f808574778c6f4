"""A consumer's frame to a command (Pulsar's WebSocket API; seek and cumulative acknowledgement are ours: docs/websocket.md)."""

from collections.abc import Mapping
from typing import Final

import msgspec

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
    """A frame that is no command. Pulsar closes the socket; with a context it is answered instead.

    `result` is Pulsar's number for what is wrong with it.
    """

    error: str
    result: int = 3


_NONE_KNOWN: Final[Mapping[str, MessageId]] = {}

Command = Acknowledge | Answering | Negative | Permit | Seek | Unsubscribe | AskEndOfTopic | Broken


def parse_command(
    text: bytes | str, known: Mapping[str, MessageId] = _NONE_KNOWN
) -> tuple[Command, str | None]:
    """The command and its context. Never raises. `known` spares the parsing of ids that were given out."""
    try:
        frame = read_command(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Broken(str(error)), None
    context = None if frame.context is None else as_text(frame.context)
    try:
        return _command(frame, known), context
    except PenstockError as error:
        return Broken(error.message), context


def _command(frame: ConsumerCommand, known: Mapping[str, MessageId]) -> Command:
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


def _message_id(frame: ConsumerCommand, known: Mapping[str, MessageId]) -> MessageId | None:
    text = frame.message_id
    if text is None:
        return None
    if type(text) is not str:
        text = as_text(text) or ""
    return known.get(text) or MessageId.parse(text)
