"""Replies between processes: those of this process's consumers are sent, those to its requests arrive.

A request has two properties: the address of its reply in the engine's form (`ReplyAddresses`), and its correlation id. A reply is an ordinary
message at that address with that id, so that consumers of any client can reply. A reply that no request waits for is counted and
dropped.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.formats import MESSAGES, REPLIES, VERSION
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage, request_timeout_ms
from penstock.model.message_id import EARLIEST
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock
from penstock.wire import entry as wire

from .requests import Request, Requests, check_size

log = logging.getLogger(__name__)

# Of a request.
REPLY_TO: Final = "penstock-reply-to"
CORRELATION_ID: Final = "penstock-correlation-id"  # of its reply, too
# Of a reply; both may be missing.
IS_ERROR: Final = "penstock-is-error"
SCHEMA_VERSION: Final = "penstock-schema-version"

CLOCKS_DIFFER_MS: Final = 300_000  # those of processes, at most
_DIGITS_MAX: Final = 18  # of a schema version, which fits into 63 bits

REPLY_TOPICS: Final = "penstock-replies-"  # how the local names of such topics begin


class ReplyAddresses(Protocol):
    """The destinations of the replies of an engine."""

    def own(self, process: str, namespace: NamespaceName) -> str:
        """The address of a process for replies to its requests of a namespace."""

    def accepts(self, reply_to: str, namespace: NamespaceName) -> bool:
        """Whether a request of a namespace may name this address: requesters must not choose the topics that
        repliers publish to."""


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


class ReplyTransport(Protocol):
    """Carries replies between addresses of `ReplyAddresses`. `receive` gets the replies that arrive."""

    async def listen(self, reply_to: str) -> None:
        """Receive replies sent to one of this process's addresses, from before this returns; may be repeated.
        Raises what the cluster says."""

    async def send(self, reply_to: str, message: OutMessage) -> None:
        """Send a message to another process's address. Raises what the cluster says."""

    async def close(self) -> None:
        """Listen no more."""


class Address(msgspec.Struct, frozen=True):
    """The destination of a reply, and the id of its request."""

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
    """The message that carries a reply; `receive` reads it."""
    properties = {CORRELATION_ID: correlation_id}
    if reply.is_error:
        properties[IS_ERROR] = "true"
    if reply.schema_version is not None:
        properties[SCHEMA_VERSION] = str(reply.schema_version)
    return OutMessage(payload=reply.content, properties=properties)


def receive(requests: Requests, properties: Mapping[str, str], content: bytes) -> None:
    """Give a reply that came from another process to its request, which fails if the reply has an unknown version."""
    correlation_id = properties.get(CORRELATION_ID, "")
    try:
        REPLIES.check(properties.get(VERSION), correlation_id)
    except PenstockError as error:
        request = requests.waits.get(correlation_id)
        if request is not None:
            log.error("a reply has an unknown version", extra={"reason": error.message})
            request.fail(error)
        return
    version = properties.get(SCHEMA_VERSION, "")
    reply = Reply(
        EARLIEST,  # the wait knows the request's id
        content,
        properties.get(IS_ERROR) == "true",
        int(version) if version.isascii() and version.isdigit() and len(version) <= _DIGITS_MAX else None,
    )
    if not requests.answer(correlation_id, reply):
        requests.late += 1


class Replies:
    """Both directions, for a whole engine. `requests` have correlation ids."""

    def __init__(
        self,
        transport: ReplyTransport,
        clock: Clock,
        requests: Requests,
        addresses: ReplyAddresses | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self.requests = requests
        self._addresses = addresses or TopicPerProcess()

    def reply_to(self, namespace: NamespaceName) -> str:
        """The destination of replies to requests of a namespace."""
        return self._addresses.own(self.requests.process, namespace)

    async def listen(self, namespace: NamespaceName) -> None:
        """Have replies to requests of a namespace arrive, before the first of them is published. Raises what the cluster
        says."""
        await self._transport.listen(self.reply_to(namespace))

    def ask(
        self, namespace: NamespaceName, messages: Sequence[OutMessage], timeouts: Sequence[int | None]
    ) -> Sequence[Request | None]:
        """As `broker.Producer.ask`, for messages to topics of a namespace, which has to be listened for before they are published."""
        requests = self.requests.ask(messages, timeouts)
        for message, request in zip(messages, requests, strict=True):
            if request is not None:
                message.properties = {**(message.properties or {}), **self.properties(namespace, request)}
        return requests

    def properties(self, namespace: NamespaceName, request: Request) -> dict[str, str]:
        """The properties by which the reply to a message of a namespace finds its wait."""
        return {REPLY_TO: self.reply_to(namespace), CORRELATION_ID: request.correlation_id}

    async def reply(self, entry: Entry, topic: TopicName, reply: Reply) -> Outcome:
        """Send the reply to a message of an entry of `topic`. Raises TOO_LARGE, and what the cluster says."""
        check_size(reply)
        messages = wire.decode(entry)
        request = messages[min(max(0, reply.request_id.batch_index), len(messages) - 1)]
        address = address_of(request, topic, self._addresses)
        if address is None:
            return Outcome.NOT_A_REQUEST
        if self.requests.owns(address.correlation_id):
            if self.requests.answer(address.correlation_id, reply):
                return Outcome.DELIVERED
            self.requests.late += 1
            return Outcome.NOBODY_WAITS
        # By the clock of another process, which ends its wait itself: a reply to it that is late is dropped there.
        over_ms = request.publish_time + (request_timeout_ms(request.properties) or 0) + CLOCKS_DIFFER_MS
        if over_ms < self._clock.now_ms():
            self.requests.late += 1
            return Outcome.NOBODY_WAITS
        await self._transport.send(address.reply_to, reply_message(reply, address.correlation_id))
        return Outcome.DELIVERED

    async def close(self) -> None:
        """Listen no more."""
        await self._transport.close()
