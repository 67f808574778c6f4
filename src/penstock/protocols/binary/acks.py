"""ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES, replies to requests (PIP-371)."""

from penstock.broker.delivery import Outcome
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import CommandAck, CommandRedeliverUnacknowledgedMessages, MessageIdData

from . import answers
from .consumer import ConsumerHandler
from .session import Session, Work


def ack(session: Session, command: CommandAck, frame: Frame) -> Work | None:
    """Acknowledge messages; answered, once that is durable, if the client asks for it."""
    handler = session.consumers.get(command.consumer_id)
    if handler is None:
        if command.HasField("request_id"):
            gone = answers.no_consumer(command.consumer_id)
            session.send(answers.ack_response(command.consumer_id, command.request_id, gone))
        return None
    late = command.message_id
    if command.ack_type == CommandAck.Individual and not _replies(command):
        late = [data for data in command.message_id if not _acknowledge(handler, data)]  # type: ignore[assignment]
        if not late:
            if command.HasField("request_id"):
                handler.answer_ack(command.request_id)
            return None
    return _ack_late(session, handler, command, list(late))


def _replies(command: CommandAck) -> bool:
    return command.HasField("reply_payload") or command.HasField("reply_to_client")


def _version_of_reply(command: CommandAck) -> int | None:
    return command.reply_schema_version if command.HasField("reply_schema_version") else None


def _acknowledge(handler: ConsumerHandler, data: MessageIdData) -> bool:
    """Acknowledge outstanding messages; False if they are not outstanding."""
    if data.ledgerId != handler.source.topic.ledger:
        return False
    return handler.answers.acknowledge_but(data.entryId, handler.unacked(data), handler.consumer)


async def _ack_late(
    session: Session, handler: ConsumerHandler, command: CommandAck, ids: list[MessageIdData]
) -> None:
    refused: PenstockError | None = None
    outcome: Outcome | None = None
    for data in ids:
        try:
            if _replies(command):
                # The reply goes first, the acknowledgement after (PIP-371). Of a batch, the id names the one message.
                replied = answers.message_id(data)
                outcome = await handler.consumer.reply(
                    replied,
                    command.reply_payload,
                    is_error=command.reply_is_error,
                    schema_version=_version_of_reply(command),
                )
            elif command.ack_type == CommandAck.Cumulative:
                await _cumulative(handler, data)
            else:
                handler.consumer.source_of(answers.message_id(data))  # of no other topic
                await handler.answers.acknowledge_but_late(
                    data.entryId, handler.unacked(data), handler.consumer
                )
        except PenstockError as error:
            refused = error
    if not command.HasField("request_id"):
        return
    if refused is None:
        handler.answer_ack(command.request_id, outcome)
    else:
        handler.send_ack_response(command.request_id, refused)


async def _cumulative(handler: ConsumerHandler, data: MessageIdData) -> None:
    """Acknowledge everything up to an entry, and of that one what its set says."""
    found = answers.message_id(data)
    unacked = handler.unacked(data)
    index = (unacked & -unacked).bit_length() - 2  # the one before the first that is not acknowledged
    if not unacked:
        target = MessageId(found.ledger, found.entry)
    elif index >= 0:
        target = MessageId(found.ledger, found.entry, -1, index)
    elif found.entry > 0:
        target = MessageId(found.ledger, found.entry - 1)
    else:
        return
    await handler.consumer.acknowledge_cumulative(target)


def redeliver(session: Session, command: CommandRedeliverUnacknowledgedMessages, frame: Frame) -> None:
    """Deliver messages again at once: those named, or all that the consumer has."""
    handler = session.consumers.get(command.consumer_id)
    if handler is None:
        return
    if command.HasField("consumer_epoch"):
        handler.epoch = command.consumer_epoch
    if not command.message_ids:
        handler.redeliver_all()
        return
    for data in command.message_ids:
        if data.ledgerId == handler.source.topic.ledger:
            handler.redeliver(data.entryId)
