"""Messages between the processes of a service, on non-persistent topics: replies to requests, and the documents by which processes know
one another."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any, Final, TypeVar

from penstock.broker.fleet import Learned
from penstock.client.aio.context import Context
from penstock.client.entries.arrived import Arrived
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.enums import ConsumerType, InitialPosition
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication, Subscription
from penstock.engines.attached.errors import engine_error, own_error
from penstock.engines.fleet.membership import FORMAT
from penstock.engines.shared.replies import receive
from penstock.engines.shared.requests import Requests
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import VERSION
from penstock.model.message import Message, OutMessage
from penstock.model.message_id import LATEST
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

from .admin import EXISTS_OR_FORBIDDEN, ensure
from .cluster import PulsarCluster

log = logging.getLogger(__name__)

_PERMITS: Final = 1000
_SENDERS_MAX: Final = 256  # of processes that asked lately; one that is needed again is made again
# A broker drops what a connection sends to non-persistent topics beyond 1,000 at a time
# (maxConcurrentNonPersistentMessagePerConnection).
_IN_FLIGHT_MAX: Final = 500
_SUBSCRIPTION: Final = "penstock"
LOCAL: Final = "processes"
ANSWERS_S: Final = 1.0  # for all processes to write their documents again
_ID: Final = (
    "penstock-process"  # a property: whose document it is. A message without it asks for all documents
)
_ENDED: Final = "penstock-process-ended"  # a property: the process has ended, as the payload proves


class Listener:
    """A consumer of a non-persistent topic by which processes send messages to one another, such as a process's topic for replies in one
    namespace; no other consumer uses `subscription`."""

    def __init__(
        self,
        context: Context,
        topic: str,
        arrived: Callable[[Message], None],
        subscription: str = _SUBSCRIPTION,
    ) -> None:
        how = Subscription(
            topic=topic,
            name=subscription,
            consumer_name="",
            type=ConsumerType.Exclusive,
            durable=False,
            initial_position=InitialPosition.Latest,
        )
        self._arrived = arrived
        self.consumer = EntryConsumer(context, how, LATEST, sink=self, recreates=True)

    async def start(self) -> None:
        """Begin to listen. Raises a PulsarException."""
        await self.consumer.start()
        self.consumer.flow(_PERMITS)

    @property
    def gone(self) -> bool:
        """Whether nothing arrives any more."""
        return self.consumer.error is not None

    async def close(self) -> None:
        await self.consumer.close()

    def arrived(self, entries: list[Arrived]) -> None:
        """Messages came."""
        self.consumer.flow(sum(one.mask.bit_count() for one in entries))
        for one in entries:
            entry = Entry(one.ledger, one.entry_id, 0, one.count, one.publish_time, 0, one.data)
            try:
                messages = wire.decode(entry)
            except PenstockError as error:
                log.warning("a message of another process cannot be understood: %s", error.message)
                continue
            for message in messages:
                self._arrived(message)

    def reset(self) -> None:
        """Nothing is kept here."""

    def active(self, active: bool) -> None:
        """The subscription has one consumer."""

    def end_reached(self) -> None:
        """The topic is not terminated."""

    def ended(self, error: PulsarException) -> None:
        log.warning("nothing can be received any more on %s: %s", self.consumer.topic, error)


class Sender:
    """A producer for a non-persistent topic by which processes send messages to one another."""

    def __init__(self, context: Context, topic: str) -> None:
        self.producer = EntryProducer(context, Publication(topic=topic))
        self._numbers = count()

    async def start(self) -> None:
        """Connect. Raises a PulsarException."""
        await self.producer.start()

    @property
    def gone(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.producer.error is not None

    async def close(self) -> None:
        await self.producer.close()

    async def send(self, message: OutMessage, now_ms: int) -> None:
        """Send one message. Raises a PulsarException."""
        number = next(self._numbers)
        entry = wire.encode(
            (message,),
            producer=self.producer.name,
            sequence_id=number,
            publish_time=now_ms,
            schema_version=None,
        )
        await self.producer.send(Outgoing(entry.data, number, number))


E = TypeVar("E", Listener, Sender)


class ReplyTopics:
    """`ReplyTransport` of a cluster; `requests` get the replies that arrive."""

    def __init__(self, context: Context, clock: Clock, tasks: Tasks, requests: Requests) -> None:
        self._context = context
        self._clock = clock
        self._tasks = tasks
        self._requests = requests
        # Each is opened once, for all that wait for it.
        self._listeners: OrderedDict[str, asyncio.Task[Listener]] = OrderedDict()
        self._senders: OrderedDict[str, asyncio.Task[Sender]] = OrderedDict()
        self._in_flight = asyncio.Semaphore(_IN_FLIGHT_MAX)

    async def listen(self, reply_to: str) -> None:
        await self._open(self._listeners, reply_to, lambda: Listener(self._context, reply_to, self._arrived))

    def _arrived(self, message: Message) -> None:
        receive(self._requests, message.properties, message.payload)

    async def send(self, reply_to: str, message: OutMessage) -> None:
        async with self._in_flight:
            sender = await self._open(self._senders, reply_to, lambda: Sender(self._context, reply_to))
            try:
                await sender.send(message, self._clock.now_ms())
            except PulsarException as error:
                raise own_error(error) from None

    async def _open(self, known: "OrderedDict[str, asyncio.Task[E]]", topic: str, make: Callable[[], E]) -> E:
        """The listener or sender of a topic, a new one if none works. Raises errors of the cluster."""
        found = known.get(topic)
        if found is None or _failed(found) or (found.done() and found.result().gone):
            found = known[topic] = self._tasks.spawn(_start(make()), f"open a topic of replies, {topic}")
        known.move_to_end(topic)
        while len(self._senders) > _SENDERS_MAX:
            _, oldest = self._senders.popitem(last=False)
            self._tasks.spawn(_close(oldest), "close a producer of replies")
        try:
            return await asyncio.shield(found)
        except PulsarException as error:
            raise own_error(error) from None

    async def close(self) -> None:
        """Leave every topic."""
        await asyncio.gather(*map(_close, self._senders.values()), *map(_close, self._listeners.values()))


async def _start(made: E) -> E:
    await made.start()
    return made


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _close(opening: "asyncio.Task[Sender] | asyncio.Task[Listener]") -> None:
    opening.cancel()
    if opening.done() and not _failed(opening):
        try:
            await opening.result().close()
        except PulsarException as error:  # the broker forgets them with the connection
            log.debug("a topic of replies could not be left: %s", error)


class PulsarProcessDocuments:
    """`ProcessDocuments`, as messages of a topic that stores nothing.

    Each process renews its document, and writes it again when a starting process asks for all documents. The topic has its own
    namespace, because it needs other policies than staged publishing and journals; it is created if it is missing.
    """

    def __init__(
        self, cluster: PulsarCluster, staging: NamespaceName, process: str, clock: Clock, tasks: Tasks
    ) -> None:
        """`staging` is the namespace of staged publishing, `process` a name that no other process has."""
        self._cluster = cluster
        self._topic = TopicName("non-persistent", staging.tenant, f"{staging.namespace}-{LOCAL}", LOCAL)
        self._process = process
        self._clock = clock
        self._tasks = tasks
        self._learned: Learned | None = None
        self._own: tuple[str, bytes] | None = None
        self._listener: Listener | None = None
        self._sender: Sender | None = None
        self._opening = asyncio.Lock()

    async def start(self, learned: Learned) -> None:
        self._learned = learned
        await self._send(b"", {})

    async def write(self, id: str, document: bytes) -> None:
        self._own = id, document
        await self._send(document, {_ID: id})

    async def remove(self, id: str, last: bytes = b"") -> None:
        if self._own is not None and id == self._own[0]:  # nothing is kept of another process
            self._own = None
            await self._send(last, {_ID: id, _ENDED: "true"})

    async def catch_up(self) -> None:
        await self._send(b"", {})
        await asyncio.sleep(ANSWERS_S)  # the number of answers is unknown

    async def _send(self, payload: bytes, properties: dict[str, str]) -> None:
        sender = await self._open()
        message = OutMessage(payload=payload, properties={**properties, **FORMAT.properties()})
        try:
            await sender.send(message, self._clock.now_ms())
        except PulsarException as error:
            raise engine_error(error) from None

    def _arrived(self, message: Message) -> None:
        process = message.properties.get(_ID)
        if process is None:
            if self._own is not None:
                self._tasks.spawn(self._answer(*self._own), "write the document of this process again")
            return
        try:
            FORMAT.check(message.properties.get(VERSION), process)
        except PenstockError as error:
            log.warning("the document of a process cannot be read: %s", error.message)
            return
        if self._learned is not None:
            ended = _ENDED in message.properties
            self._learned(process, None if ended and not message.payload else message.payload)

    async def _answer(self, id: str, document: bytes) -> None:
        try:
            await self.write(id, document)
        except PenstockError as error:
            log.debug("the document of this process was not written: %s", error.message)

    # -- the topic

    async def _open(self) -> Sender:
        """The producer of the topic, which is opened if it is not open, and its consumer. Raises a PenstockError."""
        async with self._opening:
            context = self._cluster.context
            listener, sender = self._listener, self._sender
            try:
                if listener is None or listener.gone:
                    await self._create()
                    self._listener = None
                    self._listener = await self._listen(context)
                if sender is None or sender.gone:
                    self._sender = None
                    sender = Sender(context, str(self._partition))
                    await sender.start()
                    self._sender = sender
            except PulsarException as error:
                raise engine_error(error) from None
            return sender

    async def _listen(self, context: Context) -> Listener:
        made = Listener(context, str(self._partition), self._arrived, self._process)
        await made.start()
        return made

    @property
    def _partition(self) -> TopicName:
        return self._topic.of_partition(0)

    async def _create(self) -> None:
        """Create a partitioned topic, which the cluster keeps even if it creates no topics automatically."""
        admin, path = self._cluster.admin, Target.of_topic(self._topic, "partitions")
        try:
            await ensure(admin, path, 1, missing=ErrorKind.NAMESPACE_NOT_FOUND, passed=EXISTS_OR_FORBIDDEN)
        except PenstockError as error:
            if error.kind is not ErrorKind.NAMESPACE_NOT_FOUND:
                raise
            namespace = Target.of_namespace(self._topic.namespace_name)
            await ensure(admin, namespace, {}, passed=EXISTS_OR_FORBIDDEN)
            await ensure(admin, path, 1, passed=EXISTS_OR_FORBIDDEN)
