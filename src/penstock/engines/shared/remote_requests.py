"""Request-reply (PIP-371) across processes: the waits for replies (docs/clusters.md).

A request says as properties where its reply goes, as the engine has it (`ReplyAddresses`), and a number of the request.
A reply is an ordinary message there, so that consumers of any client can give one. The first reply ends the wait; a reply
to a wait that ended is counted and dropped.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, Protocol

import msgspec

from penstock.broker.producer import Reply, ReplyOrError
from penstock.model.errors import PenstockError
from penstock.model.formats import MESSAGES, REPLIES, VERSION
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock, Timers

from .requests import check_timeout, no_reply, reply_of, shutting_down

log = logging.getLogger(__name__)

# Of a request.
REPLY_TO: Final = "penstock-reply-to"
CORRELATION_ID: Final = "penstock-correlation-id"  # of its reply, too
# Of a reply; both may be missing.
IS_ERROR: Final = "penstock-is-error"
SCHEMA_VERSION: Final = "penstock-schema-version"

_NUMBER_BYTES: Final = 16
REPLY_TOPICS: Final = "penstock-replies-"  # how the local names of such topics begin


class ReplyAddresses(Protocol):
    """Where the replies of an engine go."""

    def own(self, process: str, namespace: NamespaceName) -> str:
        """Where a process has replies to its requests of a namespace come."""

    def accepts(self, reply_to: str, namespace: NamespaceName) -> bool:
        """Whether a request of a namespace may ask for its reply there: who sends a request does not choose what the
        replier publishes to."""


class TopicPerProcess:
    """`ReplyAddresses`: a non-persistent topic of each process in the request's own namespace."""

    def own(self, process: str, namespace: NamespaceName) -> str:
        local = f"{REPLY_TOPICS}{process}"
        return str(TopicName("non-persistent", namespace.tenant, namespace.namespace, local))

    def accepts(self, reply_to: str, namespace: NamespaceName) -> bool:
        try:
            found = TopicName.parse(reply_to)
        except PenstockError:
            return False
        return (
            not found.persistent
            and found.namespace_name == namespace
            and found.local.startswith(REPLY_TOPICS)
            and found.partition < 0
        )


class Address(msgspec.Struct, frozen=True):
    """Where a reply goes, and the number of its request."""

    reply_to: str
    correlation_id: str


def address_of(request: Message, topic: TopicName, addresses: ReplyAddresses) -> Address | None:
    """The reply address of a message of `topic`; None if it is not a request. Raises NEWER_FORMAT."""
    reply_to, correlation_id = (request.properties.get(name, "") for name in (REPLY_TO, CORRELATION_ID))
    if REQUEST_TIMEOUT_PROPERTY not in request.properties or not correlation_id:
        return None
    MESSAGES.check(request.properties.get(VERSION), f"request {correlation_id}")
    return Address(reply_to, correlation_id) if addresses.accepts(reply_to, topic.namespace_name) else None


def reply_message(reply: Reply, correlation_id: str) -> OutMessage:
    """The message that carries a reply; `RemoteRequests.arrived` reads it."""
    properties = {CORRELATION_ID: correlation_id}
    if reply.is_error:
        properties[IS_ERROR] = "true"
    if reply.schema_version is not None:
        properties[SCHEMA_VERSION] = str(reply.schema_version)
    return OutMessage(payload=reply.content, properties=properties)


class Request:
    """`broker.Request`: one wait."""

    __slots__ = (
        "_early",
        "_ended",
        "_id",
        "_on_end",
        "_requests",
        "correlation_id",
        "timeout_ms",
        "waiting",
    )

    def __init__(self, requests: "RemoteRequests", correlation_id: str, timeout_ms: int) -> None:
        self._requests = requests
        self._id: MessageId | None = None
        self._early: Reply | None = None  # a reply that overtook the receipt: the id is not known yet
        self._on_end: Callable[[Request, ReplyOrError], None] | None = None
        self._ended: ReplyOrError | None = None  # until it is handed over
        self.correlation_id = correlation_id
        self.timeout_ms = timeout_ms
        self.waiting = True

    def placed(self, message_id: MessageId) -> None:
        self._id = message_id
        if self._early is not None and self.waiting:
            self._end(msgspec.structs.replace(self._early, request_id=message_id))

    def call_when_ended(self, on_end: Callable[["Request", ReplyOrError], None]) -> None:
        if self._ended is None:
            self._on_end = on_end
        else:
            ended, self._ended = self._ended, None
            on_end(self, ended)

    async def reply(self) -> Reply:
        return await reply_of(self)

    def fail(self, error: PenstockError) -> None:
        if self.waiting:
            self._end(error)

    def answer(self, reply: Reply) -> None:
        """The first reply came; its `request_id` is set here."""
        if self._id is None:
            self._early = self._early or reply
        else:
            self._end(msgspec.structs.replace(reply, request_id=self._id))

    def _end(self, ended: ReplyOrError) -> None:
        self.waiting = False
        self._requests.forget(self, ended)
        on_end, self._on_end = self._on_end, None
        if on_end is None:
            self._ended = ended
            return
        try:
            on_end(self, ended)
        except Exception:  # others that wait have no part in it
            log.exception("the end of a request could not be handed over")

    def withdraw(self) -> None:
        self._on_end = self._ended = None
        if self.waiting:
            self.waiting = False
            self._requests.forget(self, None)


class RemoteRequests:
    """`broker.Requests`: every wait of this process, and what became of them."""

    def __init__(self, clock: Clock, timeout_ms_max: int, addresses: ReplyAddresses | None = None) -> None:
        self.addresses = addresses or TopicPerProcess()
        self._clock = clock
        self._timeout_ms_max = timeout_ms_max
        self._process = secrets.token_hex(8)
        self._waits: dict[str, Request] = {}
        self._timers = Timers(clock, attrgetter("waiting"))
        self.opened = self.answered = self.late = self.timed_out = self.withdrawn = 0

    def __len__(self) -> int:
        return len(self._waits)

    def check(self, timeout_ms: int) -> None:
        check_timeout(timeout_ms, self._timeout_ms_max)

    def reply_to(self, namespace: NamespaceName) -> str:
        """Where replies to requests of a namespace come."""
        return self.addresses.own(self._process, namespace)

    def owns(self, correlation_id: str) -> bool:
        """Whether a request was made in this process."""
        return correlation_id.startswith(f"{self._process}-")

    def ask_all(
        self,
        topic: TopicName,
        messages: Sequence[OutMessage],
        timeouts: Sequence[int | None],
    ) -> list[Request | None]:
        """`ask` for each message that has a timeout, by its sequence id; raises BAD_PARAMETER, and nothing waits."""
        for timeout_ms in timeouts:
            if timeout_ms is not None:
                self.check(timeout_ms)
        return [
            None if timeout_ms is None else self.ask(topic, message, timeout_ms)
            for message, timeout_ms in zip(messages, timeouts, strict=True)
        ]

    def ask(self, topic: TopicName, message: OutMessage, timeout_ms: int) -> Request:
        """Make a message that is to be published to `topic` a request, and wait for its reply. It has to be
        listened for replies before it is published. Raises BAD_PARAMETER."""
        request = self._wait(timeout_ms)
        message.properties = {
            **(message.properties or {}),
            REQUEST_TIMEOUT_PROPERTY: str(timeout_ms),
            **self.properties(topic.namespace_name, request),
        }
        return request

    def properties(self, namespace: NamespaceName, request: Request) -> dict[str, str]:
        """By which the reply to a message of a namespace finds the wait for it."""
        return {REPLY_TO: self.reply_to(namespace), CORRELATION_ID: request.correlation_id}

    def wait(self, names: tuple[str, str, int], timeout_ms: int) -> Request:
        return self._wait(timeout_ms)

    def _wait(self, timeout_ms: int) -> Request:
        self.check(timeout_ms)
        # Random: who sees one request must not know the number of another, as it is all that a reply has to say.
        request = Request(self, f"{self._process}-{secrets.token_hex(_NUMBER_BYTES)}", timeout_ms)
        self._waits[request.correlation_id] = request
        self._timers.at(self._clock.monotonic_ms() + timeout_ms, self._time_over, request)
        self.opened += 1
        return request

    def arrived(self, message: Message) -> None:
        """A message came where replies come."""
        correlation_id = message.properties.get(CORRELATION_ID, "")
        try:
            REPLIES.check(message.properties.get(VERSION), correlation_id)
        except PenstockError as error:
            self.refuse(correlation_id, error)
            return
        version = message.properties.get(SCHEMA_VERSION, "")
        reply = Reply(
            EARLIEST,  # the wait knows the request's id
            message.payload,
            message.properties.get(IS_ERROR) == "true",
            int(version) if version.isascii() and version.isdigit() else None,
        )
        self.answer(correlation_id, reply)

    def refuse(self, correlation_id: str, error: PenstockError) -> None:
        """Fail a request whose reply has an unknown version."""
        request = self._waits.get(correlation_id)
        if request is not None:
            log.error("a reply has an unknown version", extra={"reason": error.message})
            request.fail(error)

    def answer(self, correlation_id: str, reply: Reply) -> bool:
        """Give a reply to who waits for it; False where nobody does (any more)."""
        request = self._waits.get(correlation_id)
        if request is None:
            self.late += 1
            return False
        request.answer(reply)
        return True

    def forget(self, request: Request, ended: ReplyOrError | None) -> None:
        """A wait has ended; None: it was withdrawn."""
        del self._waits[request.correlation_id]
        if ended is None:
            self.withdrawn += 1
        elif isinstance(ended, Reply):
            self.answered += 1

    def _time_over(self, request: Request) -> None:
        if request.waiting:
            self.timed_out += 1
            request.fail(no_reply(request.timeout_ms))

    def close(self) -> None:
        """The server stops: every wait ends; the messages stay."""
        gone = shutting_down()
        for request in list(self._waits.values()):
            request.fail(gone)
        self._timers.close()
