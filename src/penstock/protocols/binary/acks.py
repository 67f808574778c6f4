"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES (Pulsar's binary protocol), replies to requests (PIP-371)."""

from typing import TYPE_CHECKING

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import CommandAck, CommandRedeliverUnacknowledgedMessages, MessageIdData

from . import answers
from .consumer import ConsumerHandler
from .ids import message_id
from .output import send

if TYPE_CHECKING:
    from .session import Session, Work


def ack(session: "Session", command: CommandAck, frame: Frame) -> "Work | None":
    """Acknowledge messages; answered, once that is durable, where the client asks for it."""
    talk = session.consumers.get(command.consumer_id)
    if talk is None:
        if command.HasField("request_id"):
            gone = PenstockError(ErrorKind.CONSUMER_NOT_FOUND, f"there is no consumer {command.consumer_id}")
            send(session.output, answers.ack_response(command.consumer_id, command.request_id, gone))
        return None
    late = command.message_id
    if command.ack_type == CommandAck.Individual and not _replies(command):
        late = [data for data in command.message_id if not _acknowledge(talk, data)]  # type: ignore[assignment]
        if not late:
            if command.HasField("request_id"):
                talk.owe(command.request_id)
            return None
    return _ack_late(session, talk, command, list(late))


def _replies(command: CommandAck) -> bool:
    return command.HasField("reply_payload") or command.HasField("reply_to_client")


def _acknowledge(talk: ConsumerHandler, data: MessageIdData) -> bool:
    """Acknowledge what is out; False when it is not."""
    source = talk.source
    if data.ledgerId != source.topic.ledger:
        return False
    return source.answers.acknowledge_but(data.entryId, talk.unacked(data), talk.consumer)


async def _ack_late(
    session: "Session", talk: ConsumerHandler, command: CommandAck, ids: list[MessageIdData]
) -> None:
    refused: PenstockError | None = None
    for data in ids:
        try:
            if _replies(command):
                await _reply(talk, command, data)
            elif command.ack_type == CommandAck.Cumulative:
                await _cumulative(talk, data)
            else:
                source = talk.consumer.source_of(message_id(data))
                await source.answers.acknowledge_but_late(data.entryId, talk.unacked(data), talk.consumer)
        except PenstockError as error:
            refused = error
    if not command.HasField("request_id"):
        return
    if refused is None:
        talk.owe(command.request_id)
    else:
        send(session.output, answers.ack_response(command.consumer_id, command.request_id, refused))


async def _cumulative(talk: ConsumerHandler, data: MessageIdData) -> None:
    """Acknowledge everything up to an entry, and of that one what its set says."""
    found = message_id(data)
    unacked = talk.unacked(data)
    index = (unacked & -unacked).bit_length() - 2  # the one before the first that is not acknowledged
    if not unacked:
        target = MessageId(found.ledger, found.entry)
    elif index >= 0:
        target = MessageId(found.ledger, found.entry, -1, index)
    elif found.entry > 0:
        target = MessageId(found.ledger, found.entry - 1)
    else:
        return
    await talk.consumer.acknowledge_cumulative(target)


async def _reply(talk: ConsumerHandler, command: CommandAck, data: MessageIdData) -> None:
    """The reply goes first, the acknowledgement after (PIP-371). Of a batch, the id names the one message."""
    await talk.consumer.reply(message_id(data), command.reply_payload, is_error=command.reply_is_error)


def redeliver(session: "Session", command: CommandRedeliverUnacknowledgedMessages, frame: Frame) -> None:
    """Deliver messages again at once: those named, or all that the consumer has."""
    talk = session.consumers.get(command.consumer_id)
    if talk is None:
        return
    if command.HasField("consumer_epoch"):
        talk.epoch = command.consumer_epoch
    if not command.message_ids:
        talk.redeliver_all()
        return
    for data in command.message_ids:
        if data.ledgerId == talk.source.topic.ledger:
            talk.redeliver(data.entryId)
