"""PRODUCER, SEND and CLOSE_PRODUCER."""

import asyncio

from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName, check_subscription
from penstock.model.partitioning import PARTITIONER_CLIENT, PARTITIONER_PROPERTY
from penstock.model.policy import AccessMode, ProducerOptions
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.frames import Frame

from . import answers
from .peer import ProtocolViolation
from .producer import ProducerHandler
from .schemas import schema_info
from .session import Session, Work


def producer(session: Session, command: pb.CommandProducer, frame: Frame) -> Work | None:
    """Create a producer; one that waits to have the topic alone holds up no other."""
    work = session.answered(command.request_id, _create(session, command))
    if command.producer_access_mode != pb.ProducerAccessMode.WaitForExclusive:
        return work
    if command.producer_id in session.waiting_producers:
        work.close()
        raise ProtocolViolation(f"producer {command.producer_id} is waiting already")
    task = session.tasks.spawn(work, "wait for exclusive access")
    session.waiting_producers[command.producer_id] = task
    task.add_done_callback(lambda done: _no_longer_waiting(session, command.producer_id, done))
    return None


def _no_longer_waiting(session: Session, producer_id: int, task: asyncio.Task[None]) -> None:
    if session.waiting_producers.get(producer_id) is task:
        del session.waiting_producers[producer_id]


async def _create(session: Session, command: pb.CommandProducer) -> None:
    broker, number = session.broker, command.producer_id
    name = TopicName.parse(command.topic)
    session.admitted.may_produce(name)
    session.check_served()
    if command.initial_subscription_name:
        session.admitted.may_consume(name, check_subscription(command.initial_subscription_name))
    existing = session.producers.get(number)
    if existing is not None:  # the client did not get the answer, or asks again
        _succeed(session, command, existing.producer, None)
        return
    broker.storage.check(name)  # else the client restarts its send timeout, and never gives up
    topic = await broker.topics.get(name)  # a partition, or a topic without
    topic.check_open()
    version = None
    if command.HasField("schema"):
        version = await broker.schemas.get_or_create(name, schema_info(command.schema))
    else:
        broker.schemas.check_next(name, None)
    made = await broker.producer(
        name,
        _options(session, command),
        queued=lambda waiting: _succeed(session, command, waiting, version, ready=False),
    )
    try:
        if command.initial_subscription_name:
            await _subscription(session, name, command.initial_subscription_name)
        session.admitted.may_produce(name)  # still: its turn may have been long in coming
    except BaseException:
        made.close()
        raise
    if session.closed:
        made.close()
        return
    session.admitted.set_owner(made)
    session.disconnected.discard(number)
    session.producers[number] = ProducerHandler(
        session, number, made, session.producers, session.disconnected
    )
    _succeed(session, command, made, version)


def _options(session: Session, command: pb.CommandProducer) -> ProducerOptions:
    properties = {pair.key: pair.value for pair in command.metadata}
    client = session.client_of(properties)
    return ProducerOptions(
        name=command.producer_name,
        access_mode=AccessMode(int(command.producer_access_mode)),
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        returning=bool(command.producer_name) and not command.user_provided_producer_name,
        properties=properties,
        repartitions_by_key=properties.get(PARTITIONER_PROPERTY) != PARTITIONER_CLIENT,
        client=client,
    )


def _succeed(
    session: Session, command: pb.CommandProducer, made: Producer, version: int | None, *, ready: bool = True
) -> None:
    topic = made.topics[0]
    alone = made.options.access_mode is not AccessMode.SHARED
    epoch = topic.figures().epoch if alone and ready else -1
    session.send(
        pb.CommandProducerSuccess(
            request_id=command.request_id,
            producer_name=made.name,
            last_sequence_id=made.figures().stored_sequence_id,
            schema_version=answers.schema_version(version),
            producer_ready=ready,
            topic_epoch=epoch if epoch >= 0 else None,
        )
    )


async def _subscription(session: Session, topic: TopicName, subscription: str) -> None:
    """The subscription a producer wants to be there before its first message (PIP-124)."""
    try:
        await session.broker.subscriptions.create(topic, subscription, EARLIEST)
    except PenstockError as error:
        if error.kind is not ErrorKind.ALREADY_EXISTS:
            raise


def send_message(session: Session, command: pb.CommandSend, frame: Frame) -> None:
    """Take a message for storing."""
    handler = session.producers.get(command.producer_id)
    if handler is not None:
        handler.send(command, frame.entry)
    elif command.producer_id not in session.disconnected:
        raise ProtocolViolation(f"SEND for producer {command.producer_id}, which is not open")


def withdraw_request(session: Session, command: pb.CommandRequestReceipt, frame: Frame) -> None:
    """Wait no longer for the reply to a request of a producer; nothing happens unless it waits."""
    handler = session.producers.get(command.reply_to_producer_id)
    if handler is not None:
        handler.withdraw(command.sequence_id)


async def close_producer(session: Session, command: pb.CommandCloseProducer) -> None:
    """Close a producer once everything it sent is stored."""
    number = command.producer_id
    waiting = session.waiting_producers.pop(number, None)
    if waiting is not None:
        waiting.cancel()
    handler = session.producers.get(number)
    if handler is None:
        session.disconnected.discard(number)
    else:
        await handler.close()
        if session.producers.get(number) is handler:
            del session.producers[number]
    session.send(pb.CommandSuccess(request_id=command.request_id))
