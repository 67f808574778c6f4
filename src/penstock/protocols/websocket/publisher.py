"""Publishes the frames of one producer's socket that are there together, and writes the answer of each.

Plain payloads are published as such, and the answers are computed from the id of the first one; messages
with more, or of a topic that asks for schemas, are looked at one by one.
"""

import logging
from collections.abc import Awaitable, Sequence
from time import perf_counter
from typing import TypeVar

from penstock.broker.producer import Producer, Request, Requests, Result
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId, id_texts
from penstock.protocols.declarations import Declaration
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.proxied import Meter
from penstock.protocols.trace import traced

from .frames import encode_success, encode_successes
from .publishing import Incoming, failure, texts_of
from .replies import Replies

log = logging.getLogger(__name__)

T = TypeVar("T")


class Publisher:
    """One socket's. `trace`: properties that carry on the trace of the upgrade's request."""

    def __init__(
        self,
        producer: Producer,
        topic_schemas: TopicSchemas,
        requests: Requests,
        replies: Replies,
        meter: Meter,
        *,
        batching: bool,
        message_bytes_max: int,
        trace: dict[str, str] | None = None,
    ) -> None:
        self._producer = producer
        self._schemas = topic_schemas
        self._requests = requests
        self._replies = replies
        self._meter = meter
        self._batching = batching
        self._message_bytes_max = message_bytes_max
        self._trace = trace

    async def publish(self, group: list[Incoming]) -> None:
        """Publish a group; each then has its answer."""
        payloads = self._plain(group)
        if payloads is not None:
            await self._publish_plain(group, payloads)
            return
        await self._apply_schemas(group)
        asking = [item for item in group if item.timeout_ms is not None]
        if asking:
            self._admit(asking)
        sent = [item for item in group if item.message is not None]
        messages = [item.message for item in sent if item.message is not None]
        requests = self._ask(sent, messages) if asking else ()
        if self._trace is not None:
            for message in messages:
                message.properties = traced(message.properties, self._trace)
        results: list[Result] | PenstockError = []
        if messages:
            publish = self._producer.publish
            results = await self._outcome(publish(messages, batch=self._batching, requests=requests))
        if isinstance(results, PenstockError):
            results = [results] * len(sent)
        self._count_failures(len(group) - self._settle(sent, results))

    def _plain(self, group: Sequence[Incoming]) -> list[bytes] | None:
        """The payloads of a group of plain messages; None if they must be examined one by one."""
        if self._trace is not None or [item for item in group if not item.plain]:
            return None
        payloads = [item.message.payload for item in group if item.message is not None]
        try:
            self._schemas.check_unversioned()
        except PenstockError:
            return None
        size = sum(map(len, payloads))
        return (
            payloads if self._producer.takes_plain(len(payloads), size, None, batch=self._batching) else None
        )

    async def _publish_plain(self, group: Sequence[Incoming], payloads: Sequence[bytes]) -> None:
        """Publish messages that are nothing but payloads: as a rule there is one result."""
        placed = await self._outcome(self._producer.publish_plain(payloads, None, batch=self._batching))
        if isinstance(placed, PenstockError):
            for item in group:
                item.answer = failure(placed, item.context)
            self._meter.failures.add(len(group), 0)
            return
        if isinstance(placed, list):
            self._count_failures(len(group) - self._settle(group, placed))
            return
        answers = encode_successes(texts_of(placed), [item.context for item in group])
        for item, answer in zip(group, answers, strict=True):
            item.answer = answer
        self._meter.publishes.add(len(group), sum(map(len, payloads)))

    async def _outcome(self, publishing: Awaitable[T]) -> T | PenstockError:
        """Await the publish; the error if it failed as a whole."""
        began = perf_counter()
        try:
            return await publishing
        except PenstockError as error:
            return error
        except Exception:
            log.exception("publishing over a WebSocket failed")
            return PenstockError(ErrorKind.INTERNAL, "the message could not be stored")
        finally:
            self._meter.latency.observe((perf_counter() - began) * 1e6)

    def _count_failures(self, count: int) -> None:
        if count:
            self._meter.failures.add(count, 0)

    def _settle(self, sent: Sequence[Incoming], results: Sequence[Result]) -> int:
        """Answer each message with its result; returns how many were stored."""
        ids = [result for result in results if isinstance(result, MessageId)]
        texts = iter(id_texts(ids))
        size = 0
        for item, result in zip(sent, results, strict=True):
            message = item.message
            assert message is not None
            if isinstance(result, MessageId):
                text = next(texts)
                size += len(message.payload)
                item.answer = encode_success(text, item.context, message.schema_version)
                if item.request is not None:
                    item.message_id = text
            else:
                item.answer = failure(result, item.context)
                if item.request is not None:
                    self._replies.withdraw(item.request)
        self._meter.publishes.add(len(ids), size)
        return len(ids)

    def _admit(self, asking: list[Incoming]) -> None:
        """Refuse requests (PIP-371) that are too many, or whose timeout makes no sense."""
        opening = 0
        for item in asking:
            if item.message is None or item.timeout_ms is None:
                continue
            try:
                self._replies.check_room(opening)
                self._requests.check(item.timeout_ms)
                opening += 1
            except PenstockError as error:
                item.message = None
                item.answer = failure(error, item.context)

    def _ask(self, sent: list[Incoming], messages: list[OutMessage]) -> Sequence[Request | None]:
        """Begin the waits of a group's requests, right before it is published."""
        requests = self._producer.ask(messages, [item.timeout_ms for item in sent])
        for item, request in zip(sent, requests, strict=True):
            item.request = request
        self._replies.opened(requests)
        return requests

    async def _apply_schemas(self, group: list[Incoming]) -> None:
        """Find or register what messages say of their schemas; one that cannot be fails alone."""
        try:
            self._schemas.check_unversioned()
            refused = None
        except PenstockError as error:
            refused = error
        if refused is None:
            group = [item for item in group if item.declared is not None]
        for item in group:
            if item.message is None:
                continue
            try:
                if item.declared is not None:
                    await self._apply(item.message, item.declared)
                elif refused is not None:
                    raise refused
            except PenstockError as error:
                item.message = None
                item.answer = failure(error, item.context)

    async def _apply(self, message: OutMessage, declared: Declaration) -> None:
        """Check a message against its schema; one that is new is registered only for a message that fits."""
        scheme = await self._schemas.scheme(declared, register=False)
        if message.encryption is None:  # otherwise the server cannot say what it holds
            _adopt(message, scheme.wrap(message.payload, key=message.key))
        if len(message.payload) <= self._message_bytes_max:  # a larger one is refused when it is published
            message.schema_version = (await self._schemas.register(scheme)).version


def _adopt(message: OutMessage, checked: OutMessage) -> None:
    """Take over what a schema makes of a message."""
    message.schema_version = checked.schema_version
    message.key_is_base64 = checked.key_is_base64
