"""What a client asks about its consumer: the last message there is, and figures."""

from typing import TYPE_CHECKING

from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.entry import batch_size
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
)

from . import answers
from .consumer import ConsumerHandler
from .consumers import talk_of
from .output import send

if TYPE_CHECKING:
    from .session import Session, Work


def last_message_id(session: "Session", command: CommandGetLastMessageId, frame: Frame) -> "Work":
    """Answer the id of the last message, -1:-1 where there is none, and where the subscription stands."""
    return session.answered(command.request_id, _last_message_id(session, command))


async def _last_message_id(session: "Session", command: CommandGetLastMessageId) -> None:
    talk = talk_of(session, command.consumer_id)
    mark = talk.source.cursor.mark
    marked = MessageId(talk.source.topic.ledger, await talk.source.topic.entry_at(mark) - 1)
    answer = CommandGetLastMessageIdResponse(
        last_message_id=answers.id_data(await _last(talk)),
        request_id=command.request_id,
        consumer_mark_delete_position=answers.id_data(marked),
    )
    send(
        session.output,
        BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=answer),
    )


async def _last(talk: ConsumerHandler) -> MessageId:
    """The last message that the consumer may see."""
    topic, last = talk.source.topic, await talk.source.last_visible()
    if last is None:
        return MessageId(-1, -1, topic.name.partition)
    entry, mask = last
    size = batch_size(entry.data)
    if not size:
        return MessageId(topic.ledger, entry.entry_id, topic.name.partition)
    index, size = talk.index_of_last(mask, size)
    return MessageId(topic.ledger, entry.entry_id, topic.name.partition, index, size)


def consumer_stats(session: "Session", command: CommandConsumerStats, frame: Frame) -> None:
    """Answer a consumer's figures."""
    answer = CommandConsumerStatsResponse(request_id=command.request_id)
    try:
        talk = talk_of(session, command.consumer_id)
        consumer, source = talk.consumer, talk.source
        answer.consumerName = consumer.name
        answer.availablePermits = max(0, consumer.permits)
        answer.unackedMessages = max(0, consumer.unacked)
        answer.blockedConsumerOnUnackedMsgs = consumer.capacity() <= 0 < consumer.permits
        answer.type = consumer.options.type.value
        answer.msgBacklog = source.backlog
        answer.msgRateOut, answer.msgThroughputOut = source.rate_out.per_second()
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    send(
        session.output, BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumer_stats_response=answer)
    )
