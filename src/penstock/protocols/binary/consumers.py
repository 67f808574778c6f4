"""SUBSCRIBE, FLOW, UNSUBSCRIBE, SEEK, CLOSE_CONSUMER and what is asked about a consumer."""

from typing import TYPE_CHECKING, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandFlow,
    CommandSeek,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
)

from . import answers
from .consumer import ConsumerHandler
from .ids import start_of
from .output import ProtocolViolation, send
from .schemas import schema_info

if TYPE_CHECKING:
    from .session import Session, Work

COMES_BACK_MS: Final = 60_000  # how long a reader's subscription waits for it after a seek

_TYPES: Final = {
    CommandSubscribe.Exclusive: SubscriptionType.EXCLUSIVE,
    CommandSubscribe.Shared: SubscriptionType.SHARED,
    CommandSubscribe.Failover: SubscriptionType.FAILOVER,
    CommandSubscribe.Key_Shared: SubscriptionType.KEY_SHARED,
}


def talk_of(session: "Session", consumer_id: int) -> ConsumerHandler:
    """The consumer of that number; raises CONSUMER_NOT_FOUND."""
    talk = session.consumers.get(consumer_id)
    if talk is None:
        raise PenstockError(ErrorKind.CONSUMER_NOT_FOUND, f"there is no consumer {consumer_id}")
    return talk


# -- coming


def subscribe(session: "Session", command: CommandSubscribe, frame: Frame) -> "Work":
    """Create a consumer, and its subscription where there is none."""
    return session.answered(command.request_id, _subscribe(session, command))


async def _subscribe(session: "Session", command: CommandSubscribe) -> None:
    broker, number = session.broker, command.consumer_id
    name = TopicName.parse(command.topic)
    session.admitted.may_consume(name, command.subscription)
    if number in session.consumers:  # the client did not get the answer
        send(session.output, answers.success(command.request_id))
        return
    topic = await broker.topics.get(name, create=None if command.force_topic_creation else False)
    if command.HasField("schema"):
        await broker.schemas.check_consumer(name, schema_info(command.schema), used=topic.used)
    fresh = command.subscription not in topic.subscriptions
    consumer = await broker.subscribe(
        [name], command.subscription, _options(session, command), budget=session.holding
    )
    try:
        if fresh and command.start_message_rollback_duration_sec:
            back_ms = 1000 * command.start_message_rollback_duration_sec
            await consumer.seek_time(max(0, broker.clock.now_ms() - back_ms))
        session.admitted.may_consume(name, command.subscription)  # still
    except BaseException:
        await broker.leave(consumer)
        raise
    if session.closed:
        await broker.leave(consumer)
        return
    send(session.output, answers.success(command.request_id))
    session.admitted.set_owner(consumer)
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    session.consumers[number] = ConsumerHandler(session, number, consumer, epoch)


def _options(session: "Session", command: CommandSubscribe) -> ConsumerOptions:
    kind = _TYPES[command.subType]
    start = LATEST if command.initialPosition == CommandSubscribe.Latest else EARLIEST
    inclusive = False
    if not command.durable and command.HasField("start_message_id"):
        start, inclusive = start_of(command.start_message_id), True
    ranges: tuple[tuple[int, int], ...] = ()
    shared = command.keySharedMeta
    if kind in (SubscriptionType.KEY_SHARED, SubscriptionType.EXCLUSIVE) and (
        shared.keySharedMode == KeySharedMode.STICKY
    ):
        ranges = tuple((one.start, one.end) for one in shared.hashRanges)
        if not ranges and kind is SubscriptionType.KEY_SHARED:
            raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, "STICKY needs ranges of hashes")
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
        key_ranges=ranges,
        compacted=command.read_compacted,
        subscription_properties={pair.key: pair.value for pair in command.subscription_properties},
        properties={pair.key: pair.value for pair in command.metadata},
        client=session.client,
    )


def flow(session: "Session", command: CommandFlow, frame: Frame) -> None:
    """Allow a consumer more messages; one that is gone has no use for them."""
    talk = session.consumers.get(command.consumer_id)
    if talk is None:
        return
    if not command.messagePermits:
        raise ProtocolViolation(f"FLOW of no messages for consumer {command.consumer_id}")
    talk.flow(command.messagePermits)


# -- elsewhere


def seek(session: "Session", command: CommandSeek, frame: Frame) -> "Work":
    """Send again from a message or a time on; the client passes over what it does not want."""
    return session.answered(command.request_id, _seek(session, command))


async def _seek(session: "Session", command: CommandSeek) -> None:
    """The consumer is closed first and comes back, as with Pulsar: clients drop their queue a while after the
    answer, with what came meanwhile."""
    talk = talk_of(session, command.consumer_id)
    if command.HasField("message_id") == command.HasField("message_publish_time"):
        raise PenstockError(ErrorKind.BAD_PARAMETER, "SEEK needs a message id or a time")
    if command.HasField("message_id"):
        target = start_of(command.message_id)
        offset = await talk.source.topic.offset_after(target, inclusive=target not in (EARLIEST, LATEST))
    else:
        offset = await talk.source.topic.offset_at_time(command.message_publish_time)
    session.consumers.pop(command.consumer_id, None)
    await talk.close(keep_ms=COMES_BACK_MS)
    await talk.source.move(offset)
    send(session.output, answers.close_consumer(command.consumer_id))
    send(session.output, answers.success(command.request_id))


# -- going


def unsubscribe(session: "Session", command: CommandUnsubscribe, frame: Frame) -> "Work":
    """Delete the subscription of a consumer; with `force` also while others use it."""
    return session.answered(command.request_id, _unsubscribe(session, command))


async def _unsubscribe(session: "Session", command: CommandUnsubscribe) -> None:
    talk = talk_of(session, command.consumer_id)
    if command.force:
        await session.broker.subscriptions.delete(talk.source.topic.name, talk.source.name, force=True)
    elif len(talk.source.consumers) > 1:
        raise PenstockError(
            ErrorKind.SUBSCRIPTION_SHARED, "Unconnected or shared consumer attempting to unsubscribe"
        )
    else:
        session.consumers.pop(command.consumer_id, None)
        await session.broker.subscriptions.delete_of(talk.consumer)
        await talk.close()
    send(session.output, answers.success(command.request_id))


def close_consumer(session: "Session", command: CommandCloseConsumer, frame: Frame) -> "Work | None":
    """Let a consumer go; what it has not acknowledged goes to others."""
    talk = session.consumers.pop(command.consumer_id, None)
    if talk is None:
        send(session.output, answers.success(command.request_id))
        return None
    return session.answered(command.request_id, _close(session, command, talk))


async def _close(session: "Session", command: CommandCloseConsumer, talk: ConsumerHandler) -> None:
    await talk.close()
    send(session.output, answers.success(command.request_id))
