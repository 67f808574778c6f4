"""Replies on their way between processes: the topics that this one listens to, and those that it publishes to."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable
from itertools import count
from typing import Any, Final, TypeVar

from penstock.broker.delivery import Outcome
from penstock.broker.entry_format import EntryFormat
from penstock.broker.producer import Reply
from penstock.client.aio.context import Context
from penstock.client.entries.arrived import Arrived
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.enums import ConsumerType, InitialPosition
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication, Subscription
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage, request_timeout_ms
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .errors import own_error
from .requests import CORRELATION_ID, IS_ERROR, SCHEMA_VERSION, Address, Requests, address_of

log = logging.getLogger(__name__)

REPLY_BYTES_MAX: Final = 5 * 1024 * 1024  # a reply may be as large as a message
_PERMITS: Final = 1000
_SENDERS_MAX: Final = 256  # of processes that asked lately; one that is needed again is made again
# A broker drops what a connection sends to non-persistent topics beyond 1,000 at a time
# (maxConcurrentNonPersistentMessagePerConnection).
_IN_FLIGHT_MAX: Final = 500
_SUBSCRIPTION: Final = "penstock"

T = TypeVar("T")


class ReplyListener:
    """The consumer of this process's topic for replies in one namespace."""

    def __init__(self, context: Context, topic: TopicName, encoder: EntryFormat, requests: Requests) -> None:
        how = Subscription(
            topic=str(topic),
            name=_SUBSCRIPTION,
            consumer_name="",
            type=ConsumerType.Exclusive,
            durable=False,
            initial_position=InitialPosition.Latest,
        )
        self._encoder = encoder
        self._requests = requests
        self.consumer = EntryConsumer(context, how, LATEST, sink=self, recreates=True)

    async def start(self) -> None:
        """Begin to listen. Raises a PulsarException."""
        await self.consumer.start()
        self.consumer.flow(_PERMITS)

    def arrived(self, entries: list[Arrived]) -> None:
        """Replies came."""
        self.consumer.flow(sum(one.mask.bit_count() for one in entries))
        for one in entries:
            entry = Entry(one.ledger, one.entry_id, 0, one.count, one.publish_time, 0, one.data)
            try:
                messages = self._encoder.decode(entry)
            except PenstockError as error:
                log.warning("a reply cannot be understood: %s", error.message)
                continue
            for message in messages:
                self._answer(message)

    def _answer(self, message: Message) -> None:
        version = message.properties.get(SCHEMA_VERSION, "")
        reply = Reply(
            EARLIEST,  # the wait knows the request's id
            message.payload,
            message.properties.get(IS_ERROR) == "true",
            int(version) if version.isascii() and version.isdigit() else None,
        )
        self._requests.answer(message.properties.get(CORRELATION_ID, ""), reply)

    def reset(self) -> None:
        """Nothing is kept here."""

    def active(self, active: bool) -> None:
        """The subscription has one consumer."""

    def end_reached(self) -> None:
        """The topic is not terminated."""

    def ended(self, error: PulsarException) -> None:
        log.warning("replies cannot be received any more on %s: %s", self.consumer.topic, error)


class ReplySender:
    """A producer for one process's topic of replies."""

    def __init__(self, context: Context, topic: TopicName) -> None:
        self.producer = EntryProducer(context, Publication(topic=str(topic)))
        self._numbers = count()

    async def send(self, encoder: EntryFormat, address: Address, reply: Reply, now_ms: int) -> None:
        """Send one reply. Raises a PulsarException."""
        properties = {CORRELATION_ID: address.correlation_id}
        if reply.is_error:
            properties[IS_ERROR] = "true"
        if reply.schema_version is not None:
            properties[SCHEMA_VERSION] = str(reply.schema_version)
        number = next(self._numbers)
        entry = encoder.encode(
            (OutMessage(payload=reply.content, properties=properties),),
            producer=self.producer.name,
            sequence_id=number,
            publish_time=now_ms,
            schema_version=None,
        )
        await self.producer.send(Outgoing(entry.data, number, number))


class Replies:
    """Both directions, for the whole engine."""

    def __init__(
        self, context: Context, clock: Clock, encoder: EntryFormat, requests: Requests, tasks: Tasks
    ) -> None:
        self._context = context
        self._clock = clock
        self._encoder = encoder
        self.requests = requests
        self._tasks = tasks
        self._listeners: dict[NamespaceName, asyncio.Task[ReplyListener]] = {}
        self._senders: OrderedDict[TopicName, asyncio.Task[ReplySender]] = OrderedDict()
        self._in_flight = asyncio.Semaphore(_IN_FLIGHT_MAX)

    async def listen(self, namespace: NamespaceName) -> None:
        """Have replies to requests of a namespace arrive, before the first of them is published. Raises what the cluster
        says."""
        found = self._listeners.get(namespace)
        if found is None or _failed(found) or (found.done() and found.result().consumer.error is not None):
            starting = self._start_listener(self.requests.reply_topic(namespace))
            found = self._tasks.spawn(starting, f"listen to replies of {namespace}")
            self._listeners[namespace] = found
        await self._of_cluster(found)

    async def _start_listener(self, topic: TopicName) -> ReplyListener:
        listener = ReplyListener(self._context, topic, self._encoder, self.requests)
        await listener.start()
        return listener

    async def reply(self, entry: Entry, topic: TopicName, reply: Reply) -> Outcome:
        """Send the reply to a message of an entry of `topic`. Raises TOO_LARGE, and what the cluster says."""
        size = len(reply.content)
        if size > REPLY_BYTES_MAX:
            raise PenstockError(
                ErrorKind.TOO_LARGE, f"a reply of {size} bytes; the most is {REPLY_BYTES_MAX}"
            )
        messages = self._encoder.decode(entry)
        request = messages[min(max(0, reply.request_id.batch_index), len(messages) - 1)]
        address = address_of(request, topic)
        if address is None:
            return Outcome.NOT_A_REQUEST
        now_ms = self._clock.now_ms()
        if request.publish_time + (request_timeout_ms(request.properties) or 0) < now_ms:
            self.requests.late += 1
            return Outcome.NOBODY_WAITS
        if address.topic == self.requests.reply_topic(topic.namespace_name):
            delivered = self.requests.answer(address.correlation_id, reply)
            return Outcome.DELIVERED if delivered else Outcome.NOBODY_WAITS
        async with self._in_flight:
            sender = await self._of_cluster(self._sender(address.topic))
            try:
                await sender.send(self._encoder, address, reply, now_ms)
            except PulsarException as error:
                raise own_error(error) from None
        return Outcome.DELIVERED

    def _sender(self, topic: TopicName) -> "asyncio.Task[ReplySender]":
        found = self._senders.get(topic)
        if found is None or _failed(found) or (found.done() and found.result().producer.error is not None):
            found = self._tasks.spawn(self._start_sender(topic), f"open a producer of {topic}")
            self._senders[topic] = found
            if len(self._senders) > _SENDERS_MAX:
                _, evicted = self._senders.popitem(last=False)
                self._tasks.spawn(_close_sender(evicted), "close a producer of replies")
        self._senders.move_to_end(topic)
        return found

    async def _start_sender(self, topic: TopicName) -> ReplySender:
        sender = ReplySender(self._context, topic)
        await sender.producer.start()
        return sender

    async def _of_cluster(self, starting: "asyncio.Task[T]") -> T:
        """What a task of several waiters made. Raises what the cluster says."""
        try:
            return await asyncio.shield(starting)
        except PulsarException as error:
            raise own_error(error) from None

    async def close(self) -> None:
        """Leave every topic."""
        for sender in self._senders.values():
            await _close_sender(sender)
        for listener in self._listeners.values():
            listener.cancel()
            if listener.done() and not _failed(listener):
                await _closed(listener.result().consumer.close())


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _close_sender(starting: "asyncio.Task[ReplySender]") -> None:
    starting.cancel()
    if starting.done() and not _failed(starting):
        await _closed(starting.result().producer.close())


async def _closed(closing: Awaitable[None]) -> None:
    try:
        await closing
    except PulsarException as error:  # the broker forgets them with the connection
        log.debug("a topic of replies could not be left: %s", error)
