"""Request-reply (PIP-371): who waits for the reply to which message.

A request is an ordinary durable message with a property; only the waiting is here, in memory, and ends with the
first reply, the timeout, the requester's going or the server's. A reply may come before the requester's own
receipt: until the message's id is known, who waits is found by producer and sequence id.

A wait has no task, and all have one timer (`runtime.clock.Timers`). What a wait ended with is handed over once and
not kept: an ended wait stays in the heap of the timer until its time, or until the heap is swept.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from penstock.broker.delivery import Outcome
from penstock.broker.entry_format import EntryFormat
from penstock.broker.producer import Reply, ReplyOrError
from penstock.engines.embedded.subscription import Subscription
from penstock.engines.embedded.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import MessageId
from penstock.runtime.clock import Clock, Timers

log = logging.getLogger(__name__)

# By what a wait is found: topic, producer and sequence id, or the message's id once that is known.
_Key = tuple[str, str, int] | tuple[int, int, int]

REPLY_BYTES_MAX: Final = 5 * 1024 * 1024  # a reply may be as large as a message


class Request:
    """`broker.Request`: one wait."""

    __slots__ = ("_ended", "_on_end", "_requests", "key", "names", "timeout_ms", "waiting")

    def __init__(self, requests: "Requests", names: tuple[str, str, int], timeout_ms: int) -> None:
        self._requests = requests
        self._on_end: Callable[[Request, ReplyOrError], None] | None = None
        self._ended: ReplyOrError | None = None  # until it is handed over
        self.names = names
        self.key: _Key = names
        self.timeout_ms = timeout_ms
        self.waiting = True

    def placed(self, message_id: MessageId) -> None:
        if self.waiting:
            self._requests.move(self, _key(message_id))

    def call_when_ended(self, on_end: Callable[["Request", ReplyOrError], None]) -> None:
        if self._ended is None:
            self._on_end = on_end
        else:
            ended, self._ended = self._ended, None
            on_end(self, ended)

    async def reply(self) -> Reply:
        future: asyncio.Future[ReplyOrError] = asyncio.get_running_loop().create_future()
        self.call_when_ended(partial(_complete, future))
        ended = await future
        if isinstance(ended, PenstockError):
            raise ended
        return ended

    def fail(self, error: PenstockError) -> None:
        self.end(error)

    def end(self, ended: ReplyOrError) -> bool:
        """End the wait; False when it has ended."""
        if not self.waiting:
            return False
        self.waiting = False
        self._requests.forget(self)
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
            self.waiting = False
            self._requests.forget(self)
            self._requests.withdrawn += 1


class Requests:
    """`broker.Requests`: every wait of a broker, and what became of them."""

    def __init__(self, clock: Clock, encoder: EntryFormat, timeout_ms_max: int) -> None:
        self._clock = clock
        self._encoder = encoder
        self._timeout_ms_max = timeout_ms_max
        self._waits: dict[_Key, list[Request]] = {}
        self._timers = Timers(clock, attrgetter("waiting"))
        self.opened = self.answered = self.late = self.timed_out = self.withdrawn = 0

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    def mark(self, message: OutMessage, timeout_ms: int) -> None:
        """Make a message that is to be published a request; raises BAD_PARAMETER unless the timeout is within 1 and the
        bound."""
        self.check(timeout_ms)
        message.properties = {**(message.properties or {}), REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)}

    def wait(self, names: tuple[str, str, int], timeout_ms: int) -> Request:
        self.check(timeout_ms)
        request = Request(self, names, timeout_ms)
        self._timers.at(self._clock.monotonic_ms() + timeout_ms, self._time_over, request)
        self._waits.setdefault(names, []).append(request)
        self.opened += 1
        return request

    def check(self, timeout_ms: int) -> None:
        if not 1 <= timeout_ms <= self._timeout_ms_max:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"a request's timeout must be within 1 and {self._timeout_ms_max} ms, not {timeout_ms}",
            )

    def _time_over(self, request: Request) -> None:
        if request.waiting:
            self.timed_out += 1
            request.fail(PenstockError(ErrorKind.REQUEST_TIMEOUT, f"no reply within {request.timeout_ms} ms"))

    def move(self, request: Request, key: _Key) -> None:
        """From now on the request is found by this key."""
        self.forget(request)
        request.key = key
        self._waits.setdefault(key, []).append(request)

    def forget(self, request: Request) -> None:
        """A request that waits is found no more."""
        waits = self._waits[request.key]
        if len(waits) == 1:
            del self._waits[request.key]
        else:
            waits.remove(request)

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """Give a reply to the clients that wait for it. The caller acknowledges the message afterwards.

        `consumer` None lets any consumer of the subscription have received it. Raises MESSAGE_NOT_FOUND when
        the message is not out with it, TOO_LARGE.
        """
        message_id, size = reply.request_id, len(reply.content)
        if size > REPLY_BYTES_MAX:
            raise PenstockError(
                ErrorKind.TOO_LARGE, f"a reply of {size} bytes; the most is {REPLY_BYTES_MAX}"
            )
        if not source.answers.has_out(message_id.entry, message_id.batch_index, consumer):
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"message {message_id} is not out with this consumer: it cannot reply",
            )
        if self.reply_at_once(source, consumer, reply):
            return Outcome.DELIVERED
        message = await self._message(source, message_id)
        names = (str(source.topic.name.base), message.producer_name, message.sequence_id)
        waits = self._waits.get(names) or self._waits.get(_key(message_id))  # its id may be known by now
        if waits:
            self._answer(waits, reply)
            return Outcome.DELIVERED
        if REQUEST_TIMEOUT_PROPERTY not in message.properties:
            return Outcome.NOT_A_REQUEST
        self.late += 1
        return Outcome.NOBODY_WAITS

    def reply_at_once(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> bool:
        """`reply` where the id of the request is known by now, as it mostly is; else False, and nothing has happened."""
        message_id = reply.request_id
        waits = self._waits.get(_key(message_id))
        if (
            waits is None
            or len(reply.content) > REPLY_BYTES_MAX
            or not source.answers.has_out(message_id.entry, message_id.batch_index, consumer)
        ):
            return False
        self._answer(waits, reply)
        return True

    def _answer(self, waits: Sequence[Request], reply: Reply) -> None:
        for request in tuple(waits):
            self.answered += request.end(reply)

    async def _message(self, source: Subscription, message_id: MessageId) -> Message:
        entry = await source.topic.entry(message_id.entry)
        messages = self._encoder.decode(entry)
        return messages[min(max(0, message_id.batch_index), len(messages) - 1)]

    def close(self) -> None:
        """The server stops: every wait ends; the messages stay."""
        gone = PenstockError(
            ErrorKind.UNAVAILABLE,
            "the server is shutting down; the request is stored, nobody waits for its reply",
        )
        for request in [one for waits in self._waits.values() for one in waits]:
            request.fail(gone)
        self._timers.close()


def _complete(future: asyncio.Future[ReplyOrError], _: Request, ended: ReplyOrError) -> None:
    if not future.done():  # else its task is being cancelled
        future.set_result(ended)


def _key(message_id: MessageId) -> _Key:
    """Ids of one message are equal whether or not they say the partition or the batch's size."""
    return message_id.ledger, message_id.entry, max(0, message_id.batch_index)
