"""Request-reply (PIP-371): the table of requests that wait for replies.

A request is an ordinary durable message with a property. The wait is in memory only. It ends with the first reply, the timeout, the
requester's withdrawal or the server's stop, and its result is handed over once and not kept.

A wait is found by one key. If replies are handed over within the process, the key is topic, producer and sequence id until the
message is stored, and the message's id from then on. If replies are published to an address (`replies.Replies`), the key is the
correlation id that request and reply carry.

A wait has no task, and all have one timer (`runtime.clock.Timers`): waits that end in the same millisecond are one deadline of it.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from penstock.broker.producer import Reply, ReplyOrError, RequestFigures
from penstock.broker.producer import Request as AnyRequest
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.model.message_id import MessageId
from penstock.runtime.clock import Clock, Timers

log = logging.getLogger(__name__)

REPLY_BYTES_MAX: Final = 5 * 1024 * 1024  # a reply may be as large as a message
_CORRELATION_ID_BYTES: Final = 16

Names = tuple[str, str, int]  # topic, producer and sequence id
Key = Names | tuple[int, int, int] | str

# Waits with the same deadline, in the order in which they began.
_Bucket = dict["Request", None]


def id_key(message_id: MessageId) -> Key:
    """The key of a stored message. Ids of one message are equal whether or not they say the partition or the batch's size."""
    return message_id.ledger, message_id.entry, max(0, message_id.batch_index)


class Request(msgspec.Struct, eq=False):
    """`broker.Request`: one wait."""

    _requests: "Requests"
    _waits: dict[Key, "Request"]
    timeout_ms: int
    _bucket: _Bucket
    key: Key | None = None  # None: its message has no sequence id yet
    following: "Request | None" = None  # another wait with the same key
    waiting: bool = True
    _message_id: MessageId | None = None  # of a stored message with a correlation id
    _early: Reply | None = None  # a reply that came before the message's id
    _on_end: Callable[["Request", ReplyOrError], None] | None = None
    _ended: ReplyOrError | None = None  # until it is handed over

    def __repr__(self) -> str:  # without the other waits, to which it refers
        return f"Request{self.key}"

    @property
    def correlation_id(self) -> str:
        """The id that the reply to a request carries; "" if replies are handed over within the process."""
        return self.key if isinstance(self.key, str) else ""

    def placed(self, message_id: MessageId) -> None:
        if not self.waiting:
            return
        if isinstance(self.key, str):
            self._message_id = message_id
            if self._early is not None:
                self.answer(self._early)
        else:
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
        future: asyncio.Future[ReplyOrError] = asyncio.get_running_loop().create_future()
        self.call_when_ended(partial(_complete, future))
        ended = await future
        if isinstance(ended, PenstockError):
            raise ended
        return ended

    def answer(self, reply: Reply) -> None:
        """End the wait with a reply. A reply with a correlation id does not say the message's id, which is set here, and waits for it."""
        if isinstance(self.key, str):
            if self._message_id is None:
                self._early = self._early or reply
                return
            reply = msgspec.structs.replace(reply, request_id=self._message_id)
        self._requests.answered += self.end(reply)

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
        """End the wait; it is not found any more."""
        self.waiting = False
        bucket = self._bucket
        del bucket[self]
        if not bucket:
            bucket.clear()  # gives its memory back: the timer may have it for long
        self._leave()

    def enter(self, key: Key) -> None:
        """From now on it is found by this key, before those that are already."""
        self.key, waits = key, self._waits
        first = waits.setdefault(key, self)
        if first is not self:
            waits[key], self.following = self, first

    def _leave(self) -> None:
        """It is not found by its key any more."""
        waits, key, following = self._waits, self.key, self.following
        if key is None:
            return
        first = waits.pop(key)
        if first is not self:
            waits[key] = before = first
            while before.following is not None and before.following is not self:
                before = before.following
            before.following = following
        elif following is not None:
            waits[key] = following
        self.following = None


class Requests:
    """`broker.Requests`: every wait of this process, and what became of them.

    `correlated`: requests have correlation ids, as their replies come from other processes.
    """

    _request: type[Request] = Request

    def __init__(self, clock: Clock, timeout_ms_max: int, *, correlated: bool = False) -> None:
        self.process = secrets.token_hex(8)
        self.waits: dict[Key, Request] = {}  # the last that began, of those with one key
        self._clock = clock
        self._timeout_ms_max = timeout_ms_max
        self._correlated = correlated
        self._timers = Timers(clock, bool)  # of buckets; empty ones are not wanted
        self._bucket: _Bucket = {}  # the last one
        self._due_ms = -1  # when it ends
        self.opened = self.answered = self.late = self.timed_out = self.withdrawn = 0

    def __len__(self) -> int:
        return sum(1 for _ in self._all())

    def figures(self) -> RequestFigures:
        return RequestFigures(
            waiting=len(self),
            opened=self.opened,
            answered=self.answered,
            late=self.late,
            timed_out=self.timed_out,
            withdrawn=self.withdrawn,
        )

    def _all(self) -> Iterator[Request]:
        for request in self.waits.values():
            following: Request | None = request
            while following is not None:
                yield following
                following = following.following

    def check(self, timeout_ms: int) -> None:
        if not 1 <= timeout_ms <= self._timeout_ms_max:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"a request's timeout must be within 1 and {self._timeout_ms_max} ms, not {timeout_ms}",
            )

    def wait(self, names: Names, timeout_ms: int) -> Request:
        self.check(timeout_ms)
        request = self._begin(timeout_ms, self._clock.monotonic_ms())
        if not self._correlated:
            request.enter(names)
        return request

    def ask(self, messages: Sequence[OutMessage], timeouts: Sequence[int | None]) -> list[Request | None]:
        """Make the messages that have a timeout (ms) requests, and wait for their replies; None for the others. Without correlation
        ids they are found once they are `numbered`. Raises BAD_PARAMETER before anything happens."""
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

    def numbered(self, request: AnyRequest, names: Names) -> None:
        """The message of a request has its sequence id, and is about to be stored."""
        assert isinstance(request, Request), "`ask` gave it"
        if request.waiting:
            request.enter(names)

    def _begin(self, timeout_ms: int, now: int) -> Request:
        due_ms = now + timeout_ms
        if due_ms != self._due_ms:
            self._due_ms, self._bucket = due_ms, {}
            self._timers.at(due_ms, self._time_over, self._bucket)
        request = self._request(self, self.waits, timeout_ms, self._bucket)
        self._bucket[request] = None
        if self._correlated:
            # Random: a replier that sees one request must not know the id of another, as a reply is accepted by its id alone.
            request.enter(f"{self.process}-{secrets.token_hex(_CORRELATION_ID_BYTES)}")
        self.opened += 1
        return request

    def owns(self, correlation_id: str) -> bool:
        """Whether a request was made in this process."""
        return correlation_id.startswith(f"{self.process}-")

    def answer(self, key: Key, reply: Reply) -> bool:
        """Give a reply to all that wait for it; False if none does (any more)."""
        request = self.waits.get(key)
        if request is None:
            return False
        while request is not None:
            following = request.following
            request.answer(reply)
            request = following
        return True

    def _time_over(self, bucket: _Bucket) -> None:
        for request in list(bucket):
            if request.waiting:
                self.timed_out += 1
                request.fail(
                    PenstockError(ErrorKind.REQUEST_TIMEOUT, f"no reply within {request.timeout_ms} ms")
                )

    def close(self) -> None:
        """The server stops: every wait ends; the messages stay."""
        gone = PenstockError(
            ErrorKind.UNAVAILABLE,
            "the server is shutting down; the request is stored, its reply will be dropped",
        )
        for request in list(self._all()):
            request.fail(gone)
        self._timers.close()
        self._due_ms = -1


def _complete(future: asyncio.Future[ReplyOrError], _: Request, ended: ReplyOrError) -> None:
    if not future.done():  # else its task is being cancelled
        future.set_result(ended)


def check_size(reply: Reply) -> None:
    """Raise TOO_LARGE for a reply above the bound."""
    size = len(reply.content)
    if size > REPLY_BYTES_MAX:
        raise PenstockError(ErrorKind.TOO_LARGE, f"a reply of {size} bytes; the most is {REPLY_BYTES_MAX}")
