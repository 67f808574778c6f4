"""SUBSCRIBE, FLOW, SEEK, UNSUBSCRIBE, CLOSE_CONSUMER and requests about a consumer."""

from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName, check_subscription
from penstock.model.policy import OWN_PROPERTIES, ConsumerOptions, SubscriptionType
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.contents import batch_size
from penstock.wire.frames import Frame

from . import answers
from .consumer import ConsumerHandler
from .peer import ProtocolViolation
from .schemas import schema_info
from .session import Session

COMES_BACK_MS: Final = 60_000  # how long a reader's subscription waits for it after a seek

_TYPES: Final = {
    pb.CommandSubscribe.Exclusive: SubscriptionType.EXCLUSIVE,
    pb.CommandSubscribe.Shared: SubscriptionType.SHARED,
    pb.CommandSubscribe.Failover: SubscriptionType.FAILOVER,
    pb.CommandSubscribe.Key_Shared: SubscriptionType.KEY_SHARED,
}


def _handler_of(session: Session, consumer_id: int) -> ConsumerHandler:
    """The consumer of that number; raises CONSUMER_NOT_FOUND."""
    handler = session.consumers.get(consumer_id)
    if handler is None:
        raise answers.no_consumer(consumer_id)
    return handler


async def subscribe(session: Session, command: pb.CommandSubscribe) -> None:
    """Create a consumer, and its subscription if it does not exist."""
    broker, number = session.broker, command.consumer_id
    name = TopicName.parse(command.topic)
    session.admitted.may_consume(name, check_subscription(command.subscription))
    session.check_served()
    if number in session.consumers:  # the client did not get the answer
        session.send(pb.CommandSuccess(request_id=command.request_id))
        return
    topic = await broker.topics.get(name, create=None if command.force_topic_creation else False)
    if command.HasField("schema"):
        await broker.schemas.check_consumer(name, schema_info(command.schema), used=topic.figures().used)
    if command.start_message_rollback_duration_sec:  # it counts for a new subscription alone
        await broker.topics.learn(name, whole=True)
    fresh = command.subscription not in topic.subscriptions
    consumer = await broker.subscribe(
        [name], command.subscription, _options(session, command), budget=session.holding
    )
    try:
        if fresh and command.start_message_rollback_duration_sec:
            back_ms = 1000 * command.start_message_rollback_duration_sec
            await consumer.seek(max(0, broker.clock.now_ms() - back_ms))
        session.admitted.may_consume(name, command.subscription)  # still
        if session.closed:
            await consumer.leave()
            return
        epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
        handler = ConsumerHandler(session, number, consumer, session.consumers, epoch)
    except BaseException:
        await consumer.leave()
        raise
    session.send(pb.CommandSuccess(request_id=command.request_id))
    session.admitted.set_owner(consumer)
    session.consumers[number] = handler


def _options(session: Session, command: pb.CommandSubscribe) -> ConsumerOptions:
    kind = _TYPES[command.subType]
    start = LATEST if command.initialPosition == pb.CommandSubscribe.Latest else EARLIEST
    inclusive = False
    if not command.durable and command.HasField("start_message_id"):
        start, inclusive = answers.start_of(command.start_message_id), True
    ranges: tuple[tuple[int, int], ...] = ()
    shared = command.keySharedMeta
    if kind in (SubscriptionType.KEY_SHARED, SubscriptionType.EXCLUSIVE) and (
        shared.keySharedMode == pb.KeySharedMode.STICKY
    ):
        ranges = tuple((one.start, one.end) for one in shared.hashRanges)
        if not ranges and kind is SubscriptionType.KEY_SHARED:
            raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, "STICKY needs ranges of hashes")
    given = {pair.key: pair.value for pair in command.metadata}
    client = session.client_of(given)
    return ConsumerOptions(
        name=command.consumer_name,
        type=kind,
        durable=command.durable,
        start=start,
        start_inclusive=inclusive,
        priority=command.priority_level,
        window=None,
        flow=True,
        whole_entries=True,
        redirected=True,
        forwarded=session.of_process,
        key_ranges=ranges,
        compacted=command.read_compacted,
        subscription_properties={pair.key: pair.value for pair in command.subscription_properties},
        properties=given if session.of_process else without_own(given),
        client=client,
    )


def without_own(properties: dict[str, str]) -> dict[str, str]:
    """What a client says of its consumer: processes alone set the server's own properties."""
    return {key: value for key, value in properties.items() if not key.startswith(OWN_PROPERTIES)}


def flow(session: Session, command: pb.CommandFlow, frame: Frame) -> None:
    """Allow a consumer more messages; one that is gone has no use for them."""
    handler = session.consumers.get(command.consumer_id)
    if handler is None:
        return
    if not command.messagePermits:
        raise ProtocolViolation(f"FLOW of no messages for consumer {command.consumer_id}")
    handler.flow(command.messagePermits)


async def seek(session: Session, command: pb.CommandSeek) -> None:
    """Send again from a message or a time on; the client passes over what it does not want.

    The consumer is closed first and comes back, as with Pulsar: clients drop their queue a while after the answer,
    with later messages.
    """
    handler = _handler_of(session, command.consumer_id)
    if command.HasField("message_id") == command.HasField("message_publish_time"):
        raise PenstockError(ErrorKind.BAD_PARAMETER, "SEEK needs a message id or a time")
    if command.HasField("message_id"):
        target = answers.start_of(command.message_id)
        offset = await handler.source.topic.offset_after(target, inclusive=target not in (EARLIEST, LATEST))
    else:
        offset = await handler.source.topic.offset_at_time(command.message_publish_time)
    there = session.consumers.pop(command.consumer_id, None)
    await handler.close(keep_ms=COMES_BACK_MS)
    try:
        await handler.source.move(offset)
    finally:
        if there is not None:  # else the client knows
            session.send(answers.close_consumer(command.consumer_id))
    session.send(pb.CommandSuccess(request_id=command.request_id))


async def unsubscribe(session: Session, command: pb.CommandUnsubscribe) -> None:
    """Delete the subscription of a consumer; with `force` also while others use it."""
    handler = _handler_of(session, command.consumer_id)
    if command.force:
        await session.broker.subscriptions.delete(handler.source.topic.name, handler.source.name, force=True)
    else:
        session.consumers.pop(command.consumer_id, None)  # the client knows that it ends
        try:
            await handler.consumer.unsubscribe()
        except PenstockError:
            if (
                handler.consumer.closed
            ):  # with the subscription, of which it is not known whether it was deleted
                session.send(answers.close_consumer(command.consumer_id))
            else:
                session.consumers[command.consumer_id] = handler
            raise
        await handler.close()
    session.send(pb.CommandSuccess(request_id=command.request_id))


async def close_consumer(session: Session, command: pb.CommandCloseConsumer) -> None:
    """Close a consumer; what it has not acknowledged goes to others."""
    handler = session.consumers.pop(command.consumer_id, None)
    if handler is not None:
        await handler.close()
    session.send(pb.CommandSuccess(request_id=command.request_id))


async def last_message_id(session: Session, command: pb.CommandGetLastMessageId) -> None:
    """Answer the id of the last message, -1:-1 without one, and the position of the subscription."""
    handler = _handler_of(session, command.consumer_id)
    mark = handler.source.figures().mark
    marked = MessageId(handler.source.topic.ledger, await handler.source.topic.entry_at(mark) - 1)
    session.send(
        pb.CommandGetLastMessageIdResponse(
            last_message_id=answers.id_data(await _last(handler)),
            request_id=command.request_id,
            consumer_mark_delete_position=answers.id_data(marked),
        )
    )


async def _last(handler: ConsumerHandler) -> MessageId:
    """The last message that the consumer may see."""
    topic, last = handler.source.topic, await handler.source.last_visible()
    if last is None:
        return MessageId(-1, -1, topic.name.partition)
    entry, mask = last
    size = batch_size(entry.data)
    if not size:
        return MessageId(topic.ledger, entry.entry_id, topic.name.partition)
    index, size = handler.index_of_last(mask, size)
    return MessageId(topic.ledger, entry.entry_id, topic.name.partition, index, size)


def consumer_stats(session: Session, command: pb.CommandConsumerStats, frame: Frame) -> None:
    """Answer a consumer's figures."""
    answer = pb.CommandConsumerStatsResponse(request_id=command.request_id)
    try:
        handler = _handler_of(session, command.consumer_id)
        consumer, source = handler.consumer, handler.source.figures()
        figures = consumer.figures()
        answer.consumerName = consumer.name
        answer.availablePermits = max(0, figures.permits)
        answer.unackedMessages = max(0, figures.unacked)
        answer.blockedConsumerOnUnackedMsgs = figures.capacity <= 0 < figures.permits
        answer.type = consumer.options.type.value
        answer.msgBacklog = source.backlog
        answer.msgRateOut, answer.msgThroughputOut = source.rate_out.per_second()
    except PenstockError as error:
        answer.error_code = error.kind.codes.server_error  # type: ignore[assignment]
        answer.error_message = error.message
    session.send(answer)
