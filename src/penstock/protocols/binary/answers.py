"""Commands that answer: one function each, so that the handlers read as what they do."""

from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.fields import schema_version_bytes
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAckResponse,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandError,
    CommandProducerSuccess,
    CommandReachedEndOfTopic,
    CommandRequestReceipt,
    CommandSendError,
    CommandSuccess,
    MessageIdData,
)

BROKERS_OWN = 2**64 - 1  # the request id of what the broker does unasked


def id_data(message_id: MessageId) -> MessageIdData:
    """An id as the protocol's message."""
    return MessageIdData.FromString(message_id.to_bytes())


def error(request_id: int, refused: PenstockError) -> BaseCommand:
    """ERROR, with the number the error has on the wire."""
    return BaseCommand(
        type=BaseCommand.ERROR,
        error=CommandError(
            request_id=request_id,
            error=refused.kind.codes.server_error,  # type: ignore[arg-type]
            message=refused.message,
        ),
    )


def success(request_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id))


def producer_success(
    request_id: int,
    name: str,
    last_sequence_id: int,
    schema_version: int | None,
    epoch: int,
    *,
    ready: bool = True,
) -> BaseCommand:
    answer = CommandProducerSuccess(
        request_id=request_id,
        producer_name=name,
        last_sequence_id=last_sequence_id,
        # Always there, though it may be empty: the Java client reads it unasked, and hangs without it.
        schema_version=b"" if schema_version is None else schema_version_bytes(schema_version),
        producer_ready=ready,
    )
    if epoch >= 0:
        answer.topic_epoch = epoch
    return BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=answer)


def send_error(producer_id: int, sequence_id: int, refused: PenstockError) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.SEND_ERROR,
        send_error=CommandSendError(
            producer_id=producer_id,
            sequence_id=sequence_id,
            error=refused.kind.codes.server_error,  # type: ignore[arg-type]
            message=refused.message,
        ),
    )


def close_producer(producer_id: int) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.CLOSE_PRODUCER,
        close_producer=CommandCloseProducer(producer_id=producer_id, request_id=BROKERS_OWN),
    )


def close_consumer(consumer_id: int) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.CLOSE_CONSUMER,
        close_consumer=CommandCloseConsumer(consumer_id=consumer_id, request_id=BROKERS_OWN),
    )


def active_consumer(consumer_id: int, *, active: bool) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.ACTIVE_CONSUMER_CHANGE,
        active_consumer_change=CommandActiveConsumerChange(consumer_id=consumer_id, is_active=active),
    )


def end_of_topic(consumer_id: int) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.REACHED_END_OF_TOPIC,
        reached_end_of_topic=CommandReachedEndOfTopic(consumer_id=consumer_id),
    )


def ack_response(consumer_id: int, request_id: int, refused: PenstockError | None) -> BaseCommand:
    answer = CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if refused is not None:
        answer.error = refused.kind.codes.server_error  # type: ignore[assignment]
        answer.message = refused.message
    return BaseCommand(type=BaseCommand.ACK_RESPONSE, ack_response=answer)


def reply(
    producer_id: int, sequence_id: int, message_id: MessageId, content: bytes, *, is_error: bool
) -> BaseCommand:
    """REQUEST_RECEIPT (PIP-371)."""
    return BaseCommand(
        type=BaseCommand.REQUEST_RECEIPT,
        request_receipt=CommandRequestReceipt(
            reply_to_producer_id=producer_id,
            request_message_id=id_data(message_id),
            reply_payload=content,
            is_error=is_error,
            sequence_id=sequence_id,
        ),
    )
