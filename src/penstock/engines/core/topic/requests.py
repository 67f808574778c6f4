"""Request-reply (PIP-371): who waits for the reply to which message.

A request is an ordinary durable message with a property; only the waiting is here, in memory, and ends with the
first reply, the timeout, the requester's going or the server's. A reply may come before the requester's own
receipt: until the message's id is known, who waits is found by producer and sequence id.

A wait has no task, and all have one timer (`runtime.clock.Timers`): waits that end in the same millisecond are one
deadline of it. What a wait ended with is handed over once and not kept.
"""

import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.broker.delivery import Outcome
from penstock.broker.entry_format import EntryFormat
from penstock.broker.producer import Reply, ReplyOrError
from penstock.broker.producer import Request as AnyRequest
from penstock.engines.shared.requests import (
    REPLY_BYTES_MAX,
    check_size,
    check_timeout,
    no_reply,
    reply_of,
    shutting_down,
)
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import MessageId
from penstock.runtime.clock import Clock, Timers

log = logging.getLogger(__name__)

# By what a wait is found: topic, producer and sequence id, or the message's id once that is known.
_Key = tuple[str, str, int] | tuple[int, int, int]

# Waits with the same deadline, in the order in which they began.
_Bucket = dict["Request", None]


class Request(msgspec.Struct, eq=False):
    """`broker.Request`: one wait."""

    _requests: "Requests"
    _waits: dict[_Key, "Request"]
    timeout_ms: int
    _bucket: _Bucket
    _key: _Key | None = None  # None: its message has no sequence id yet
    _next: "Request | None" = None  # another wait for the same message
    waiting: bool = True
    _on_end: Callable[["Request", ReplyOrError], None] | None = None
    _ended: ReplyOrError | None = None  # until it is handed over

    def __repr__(self) -> str:  # without all the others, which it refers to
        return f"Request{self._key}"

    def placed(self, message_id: MessageId) -> None:
        if self.waiting:
            self._leave()
            index = message_id.batch_index
            self.enter((message_id.ledger, message_id.entry, index if index > 0 else 0))

    def call_when_ended(self, on_end: Callable[["Request", ReplyOrError], None]) -> None:
        if self._ended is None:
            self._on_end = on_end
        else:
            ended, self._ended = self._ended, None
            on_end(self, ended)

    async def reply(self) -> Reply:
        return await reply_of(self)

    def fail(self, error: PenstockError) -> None:
        self.end(error)

    def end(self, ended: ReplyOrError) -> bool:
        """End the wait; False when it has ended."""
        if not self.waiting:
            return False
        self._forget()
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            self._ended = ended
        else:
            try:
                on_end(self, ended)
            except Exception:  # the consumer that replies has no part in it
                log.exception("the end of a request could not be handed over")
        return True

    def withdraw(self) -> None:
        self._on_end = self._ended = None
        if self.waiting:
            self._forget()
            self._requests.withdrawn += 1

    def _forget(self) -> None:
        """It waits no more, and is not found any more."""
        self.waiting = False
        bucket = self._bucket
        del bucket[self]
        if not bucket:
            bucket.clear()  # gives its memory back: the timer may have it for long
        self._leave()

    def enter(self, key: _Key) -> None:
        """From now on it is found by this key, before those that are already."""
        self._key, waits = key, self._waits
        first = waits.setdefault(key, self)
        if first is not self:
            waits[key], self._next = self, first

    def _leave(self) -> None:
        """It is not found by its key any more."""
        waits, key, following = self._waits, self._key, self._next
        if key is None:
            return
        first = waits.pop(key)
        if first is not self:
            waits[key] = before = first
            while before._next is not None and before._next is not self:
                before = before._next
            before._next = following
        elif following is not None:
            waits[key] = following
        self._next = None


class Requests:
    """`broker.Requests`: every wait of a broker, and what became of them."""

    def __init__(self, clock: Clock, encoder: EntryFormat, timeout_ms_max: int) -> None:
        self._clock = clock
        self._encoder = encoder
        self._timeout_ms_max = timeout_ms_max
        self._waits: dict[_Key, Request] = {}  # the last that began, of those for one message
        self._timers = Timers(clock, bool)  # of buckets; empty ones are not wanted
        self._bucket: _Bucket = {}  # the last one
        self._due_ms = -1  # when it ends
        self.opened = self.answered = self.late = self.timed_out = self.withdrawn = 0

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def _all(self) -> Iterator[Request]:
        for request in self._waits.values():
            following: Request | None = request
            while following is not None:
                yield following
                following = following._next

    def mark(self, message: OutMessage, timeout_ms: int) -> None:
        """Make a message that is to be published a request; raises BAD_PARAMETER unless the timeout is within 1 and the
        bound."""
        self.check(timeout_ms)
        message.properties = {**(message.properties or {}), REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)}

    def wait(self, names: tuple[str, str, int], timeout_ms: int) -> Request:
        self.check(timeout_ms)
        request = self._begin(timeout_ms, self._clock.monotonic_ms())
        request.enter(names)
        return request

    def wait_for(
        self, messages: Sequence[OutMessage], timeouts: Sequence[int | None]
    ) -> list[Request | None]:
        """Make the messages that have a timeout (ms) requests, and wait for their replies; None for the others. They are found
        once they are `numbered`. Raises BAD_PARAMETER before anything happens."""
        for timeout_ms in set(timeouts):
            if timeout_ms is not None:
                self.check(timeout_ms)
        now = self._clock.monotonic_ms()
        marked_ms, mark = 0, {REQUEST_TIMEOUT_PROPERTY: ""}
        requests: list[Request | None] = []
        for message, timeout_ms in zip(messages, timeouts, strict=True):
            if timeout_ms is None:
                requests.append(None)
                continue
            if timeout_ms != marked_ms:
                marked_ms, mark = timeout_ms, {REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)}
            message.properties = {**message.properties, **mark} if message.properties else mark
            requests.append(self._begin(timeout_ms, now))
        return requests

    def numbered(self, request: AnyRequest, names: tuple[str, str, int]) -> None:
        """The message of a request has its sequence id, and is about to be stored."""
        assert isinstance(request, Request), "`wait_for` gave it"
        if request.waiting:
            request.enter(names)

    def _begin(self, timeout_ms: int, now: int) -> Request:
        due_ms = now + timeout_ms
        if due_ms != self._due_ms:
            self._due_ms, self._bucket = due_ms, {}
            self._timers.at(due_ms, self._time_over, self._bucket)
        request = Request(self, self._waits, timeout_ms, self._bucket)
        self._bucket[request] = None
        self.opened += 1
        return request

    def check(self, timeout_ms: int) -> None:
        check_timeout(timeout_ms, self._timeout_ms_max)

    def _time_over(self, bucket: _Bucket) -> None:
        for request in list(bucket):
            if request.waiting:
                self.timed_out += 1
                request.fail(no_reply(request.timeout_ms))

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """Give a reply to the clients that wait for it. The caller acknowledges the message afterwards.

        `consumer` None lets any consumer of the subscription have received it. Raises MESSAGE_NOT_FOUND when
        the message is not out with it, TOO_LARGE.
        """
        check_size(reply)
        message_id = reply.request_id
        if not source.answers.has_out(message_id.entry, message_id.batch_index, consumer):
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"message {message_id} is not out with this consumer: it cannot reply",
            )
        if not self.reply_all(source, consumer, (reply,)):
            return Outcome.DELIVERED
        message = await self._message(source, message_id)
        names = (str(source.topic.name.base), message.producer_name, message.sequence_id)
        request = self._waits.get(names) or self._waits.get(_key(message_id))  # its id may be known by now
        if request is not None:
            self._answer(request, reply)
            return Outcome.DELIVERED
        if REQUEST_TIMEOUT_PROPERTY not in message.properties:
            return Outcome.NOT_A_REQUEST
        self.late += 1
        return Outcome.NOBODY_WAITS

    def reply_all(
        self, source: Subscription, consumer: Receiver | None, replies: Sequence[Reply]
    ) -> list[Reply]:
        """`reply` many at once, where the ids of the requests are known by now, as they mostly are. Returns the others:
        with them nothing has happened."""
        waits, has_out = self._waits, source.answers.has_out
        left: list[Reply] = []
        for reply in replies:
            message_id = reply.request_id
            entry, index = message_id.entry, message_id.batch_index
            request = waits.get((message_id.ledger, entry, index if index > 0 else 0))
            if request is None or len(reply.content) > REPLY_BYTES_MAX or not has_out(entry, index, consumer):
                left.append(reply)
            elif request._next is None:
                self.answered += request.end(reply)
            else:
                self._answer(request, reply)
        return left

    def _answer(self, first: Request, reply: Reply) -> None:
        request: Request | None = first
        while request is not None:
            following = request._next
            self.answered += request.end(reply)
            request = following

    async def _message(self, source: Subscription, message_id: MessageId) -> Message:
        entry = await source.topic.entry(message_id.entry)
        messages = self._encoder.decode(entry)
        return messages[min(max(0, message_id.batch_index), len(messages) - 1)]

    def close(self) -> None:
        """The server stops: every wait ends; the messages stay."""
        gone = shutting_down()
        for request in list(self._all()):
            request.fail(gone)
        self._timers.close()
        self._due_ms = -1


def _key(message_id: MessageId) -> _Key:
    """Ids of one message are equal whether or not they say the partition or the batch's size."""
    return message_id.ledger, message_id.entry, max(0, message_id.batch_index)
