"""A consumer's or reader's messages from its receivers to the application: what both clients do alike."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import Any

from penstock.client.enums import SHARED_TYPES, ConsumerType
from penstock.client.errors import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    OperationNotSupported,
    PulsarException,
    Timeout,
)
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .dead_letters import DeadLetters
from .receiver import Receiver
from .tasks import log


class Arrivals:
    """A queue. A wake-up carries no message, so that no caller's end can lose one.

    The blocking driver takes messages in other threads; all else happens in the loop's.
    """

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._lock = threading.Lock()
        self._wakers: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not waker.done() for waker in self._wakers)

    def put(self, messages: list[Message]) -> None:
        """Messages came."""
        self._queue += messages
        self.wake(len(messages))

    def take(self) -> Message | None:
        """The first message, or None."""
        with self._lock:
            return self._queue.popleft() if self._queue else None

    def drop(self, topic: str) -> int:
        """Forget a topic's messages; returns how many they were."""
        with self._lock:
            rest = [message for message in self._queue if message._topic != topic]
            dropped = len(self._queue) - len(rest)
            self._queue.clear()
            self._queue += rest
        return dropped

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()

    async def wait(self, timeout_s: float | None) -> None:
        """Until there may be a message, or none will come. Raises Timeout."""
        waker = asyncio.get_running_loop().create_future()
        self._wakers.append(waker)
        try:
            async with asyncio.timeout(timeout_s):
                await waker
        except TimeoutError:
            raise Timeout("no message in time") from None
        finally:
            if waker in self._wakers:
                self._wakers.remove(waker)
            elif self._queue:
                self.wake(1)  # the one that was woken may have given up: another looks

    def wake(self, count: int | None = None) -> None:
        """Let so many look, None: all of them."""
        while self._wakers and (count is None or count > 0):
            waker = self._wakers.popleft()
            if not waker.done():
                waker.set_result(None)
                count = None if count is None else count - 1


class Incoming:
    """The receivers of one topic or several, and the queue that they fill.

    `take`, `check` and `check_order` may be called in any thread; all else is for the loop's.
    """

    def __init__(self, topic: str, subscription: str, name: str, kind: ConsumerType, queue_size: int) -> None:
        self.topic = topic
        self.subscription = subscription
        self.name = name
        self.queue_size = queue_size
        self.arrivals = Arrivals()
        self.receivers: dict[str, Receiver] = {}
        self.dead_letters: DeadLetters | None = None
        self.error: PulsarException | None = None
        self.jobs: list[asyncio.Task[Any]] = []
        self._kind = kind
        self._unsettled: deque[Message] = deque()  # what it took, to be accounted for
        self._settle_at = max(1, queue_size // 4)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self.error is None and all(r.connected for r in self.receivers.values())

    async def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription: an id moves the topic it belongs to; earliest, latest and times move all."""
        everywhere = isinstance(messageid, int) or messageid in (MessageId.earliest, MessageId.latest)
        if everywhere:
            await asyncio.gather(*(r.seek(messageid) for r in self.receivers.values()))
        elif isinstance(messageid, MessageId):
            await self._receiver_of(messageid).seek(messageid)
        else:
            raise ValueError(f"seek takes a MessageId or a time in ms, not {type(messageid).__name__}")

    async def close(self) -> None:
        """Leave the topics."""
        if isinstance(self.error, AlreadyClosed):
            return
        self.error = AlreadyClosed("the consumer is closed")
        for job in self.jobs:
            if job is not asyncio.current_task():
                job.cancel()
        self.arrivals.wake()
        await asyncio.gather(*(receiver.close() for receiver in self.receivers.values()))
        self.arrivals.clear()
        if self.dead_letters is not None:
            await self.dead_letters.close()

    # -- acknowledgements

    def check_order(self) -> None:
        """Raise CumulativeAcknowledgementNotAllowedError if messages have no order."""
        if self._kind in SHARED_TYPES:
            raise CumulativeAcknowledgementNotAllowedError(
                f"a {self._kind.name} subscription has no order to acknowledge up to"
            )

    def redeliver_all(self) -> None:
        """Redeliver all unacknowledged messages now."""
        for receiver in self.receivers.values():
            receiver.redeliver_all()

    def check(self, message: Message | MessageId) -> None:
        """Raise why a message cannot be acknowledged."""
        message_id = message._id if isinstance(message, Message) else message
        error = self._receiver_of(message_id).error
        if error is not None:
            raise error

    def acknowledge(
        self, message: Message | MessageId, reply: bytes | None = None, is_error: bool = False
    ) -> None:
        """A message is done; `reply` goes to its producer."""
        message_id = message._id if isinstance(message, Message) else message
        receiver = self._receiver_of(message_id)
        if reply is None:
            receiver.acknowledge(message_id)
            return
        to = message.producer_name() if isinstance(message, Message) else ""
        receiver.reply(message_id, to, reply, is_error=is_error)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """A message and all before it are done."""
        self.check_order()
        message_id = message._id if isinstance(message, Message) else message
        self._receiver_of(message_id).acknowledge_up_to(message_id)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Redeliver a message after a delay."""
        message_id = message._id if isinstance(message, Message) else message
        self._receiver_of(message_id).refuse(message_id)

    # -- taking messages

    def take(self) -> Message | None:
        """A message that is here already, in any thread; `settle` has to account for it in the loop's."""
        message = self.arrivals.take() if self.error is None else None
        if message is not None:
            self._unsettled.append(message)
        return message

    @property
    def settle_due(self) -> bool:
        """Whether enough was taken to send permits: the broker gets more in steps of half the queue."""
        return len(self._unsettled) >= self._settle_at or not self.arrivals

    def settle(self) -> None:
        """Account for what `take` gave."""
        now = time.time()
        while self._unsettled:
            self._taken(self._unsettled.popleft(), now)

    async def receive(self, timeout_s: float | None) -> Message:
        """Wait for a message. Raises Timeout, or why none will come."""
        while (message := self.arrivals.take()) is None:
            await self._wait(timeout_s)
        self._taken(message, time.time())
        return message

    def _taken(self, message: Message, now: float) -> None:
        receiver = self.receivers.get(message._topic)
        if receiver is not None:
            receiver.taken(message, now)

    async def _wait(self, timeout_s: float | None) -> None:
        self._check_error()
        if self.queue_size == 0:
            for receiver in self.receivers.values():
                receiver.ask_for(1)
        await self.arrivals.wait(timeout_s)
        if not self.arrivals:
            self._check_error()

    def _check_error(self) -> None:
        if self.error is not None:
            raise self.error

    # -- the receivers' side

    def arrived(self, receiver: Receiver, messages: list[Message]) -> None:
        self.arrivals.put(messages)

    def forget(self, receiver: Receiver) -> int:
        self.settle()
        return self.arrivals.drop(receiver.topic)

    async def give_up(self, receiver: Receiver, messages: list[Message]) -> None:
        assert self.dead_letters is not None
        for message in messages:
            try:
                await self.dead_letters.publish(receiver.topic, message)
                receiver.acknowledge(message._id)
            except PulsarException as error:
                log.warning("%r could not become a dead letter: %s", message, error)
                receiver.refuse(message._id)

    def ended(self, receiver: Receiver, error: PulsarException) -> None:
        if self.error is None and len(self.receivers) == 1:
            self.error = error
            self.arrivals.wake()

    def wants(self) -> int:
        return self.arrivals.waiting

    def _receiver_of(self, message_id: MessageId) -> Receiver:
        receivers = self.receivers
        found = receivers.get(message_id.topic_name())
        if found is not None:
            return found
        fitting = list(receivers.values())
        if len(fitting) > 1:
            fitting = [r for r in fitting if r.inbox.partition == message_id.partition()]
        if len(fitting) != 1:
            raise OperationNotSupported(
                "the message id does not say which of the topics it belongs to: use the message, or "
                "MessageId.deserialize(data, topic)"
            )
        return fitting[0]


class AnyReader:
    """What the readers of both clients know without asking the broker."""

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming  # for the clients alone

    def topic(self) -> str:
        """The topic, or the several topics or the pattern by commas."""
        return self.incoming.topic

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self.incoming.connected


class AnyConsumer(AnyReader):
    """The same of consumers."""

    def subscription_name(self) -> str:
        """The subscription's name."""
        return self.incoming.subscription

    def consumer_name(self) -> str:
        """The consumer's name."""
        return self.incoming.name
