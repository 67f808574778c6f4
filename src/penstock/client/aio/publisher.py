"""A producer's half of one topic or partition: an `Outbox`, connected again when it has to be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from penstock.client.draft import ReplyResult
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import AlreadyClosed, NotConnected, PulsarException, ReadError, server_error
from penstock.client.message_id import MessageId
from penstock.client.schema.schema import Schema
from penstock.client.session import commands
from penstock.client.session.batch import Sending
from penstock.client.session.commands import Publication
from penstock.client.session.outbox import Outbox
from penstock.client.session.sent import Settled
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.wire.frames import Frame
from penstock.wire.metadata import schema_version_number, signed
from penstock.wire.pulsar_pb2 import BaseCommand, CommandCloseProducer

from .context import Context
from .link import Link
from .tasks import Reconnecting, log, within

# Errors of one message: sending it again would not help, and the others are not concerned.
_ITS_OWN: Final = frozenset((1, 9, 10, 17, 18, 22))
_AGAIN_S: Final = 0.1  # before a broker that could not register a schema is asked again


class Publisher:
    """Tokens are called with an error, or None and the message's id; a token may be None."""

    def __init__(
        self,
        context: Context,
        how: Publication,
        sending: Sending,
        partition: int,
        schema: Schema,
        on_settled: Callable[[], None],
    ) -> None:
        self.topic = how.topic
        self.error: PulsarException | None = None
        self._context = context
        self._how = how
        self._partition = partition
        self._schema = schema
        self._id = next(context.numbers)
        self.outbox = Outbox(self._id, sending)
        self._link: Link | None = None
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._wake_s = min(
            sending.batch_delay_s if sending.batching else float("inf"), sending.timeout_s or float("inf")
        )
        self._due = False  # a write is on its way at the end of this turn of the loop
        self._registering = False
        self._idle: list[asyncio.Future[None]] = []
        self._on_settled = on_settled  # there may be room for more
        self._reconnecting = Reconnecting(f"the producer of {how.topic}", self._connect, self._end)

    # -- coming and going

    async def start(self) -> None:
        """Connect. Raises the error that prevents it."""
        await within(self._connect, self._context.timeout_s)
        self._context.tasks.spawn(self._reconnecting.run(), f"keep the producer of {self.topic}")

    @property
    def connected(self) -> bool:
        return self.outbox.attached

    @property
    def supports_requests(self) -> bool:
        """Whether the broker knows PIP-371; assumed without a connection."""
        return self._link is None or self._link.session.supports_request_reply

    async def _connect(self) -> None:
        link = await self._context.lookup.link(self.topic)
        link.producers[self._id] = self
        waits = self._how.access_mode is ProducerAccessMode.WaitForExclusive
        try:
            command = commands.producer(
                self._id, self._how, self._epoch, self._topic_epoch, self.outbox.name or None
            )
            answer = await link.ask(command, None if waits else self._context.timeout_s)
        except BaseException:
            link.producers.pop(self._id, None)
            raise
        if link.producers.get(self._id) is not self:
            raise NotConnected("the connection broke")
        self._link = link
        self._epoch += 1
        if answer.HasField("topic_epoch"):
            self._topic_epoch = answer.topic_epoch
        version = schema_version_number(answer.schema_version)
        self.outbox.knows(self._schema.identity, version)
        size = link.session.max_message_size
        self.outbox.attach(answer.producer_name, answer.last_sequence_id, version, size)
        self._registered()

    def lost(self, link: Link, error: PulsarException) -> None:
        if self._link is link:
            self._link = None
        self.outbox.detach()
        if self.error is None:
            self._reconnecting.lost()

    def _end(self, error: PulsarException) -> None:
        self.error = error
        self.outbox.fail(error)
        self._report()

    async def close(self) -> None:
        """Send what there is, then leave."""
        if self.error is not None:
            return
        try:
            await self.flush()
        finally:
            link, self._link = self._link, None
            self.error = AlreadyClosed("the producer is closed")
            if self._timer is not None:
                self._timer.cancel()
            self.outbox.fail(self.error)
            self._report()
            if link is not None and not link.closed:
                link.producers.pop(self._id, None)
                await link.ask(CommandCloseProducer(producer_id=self._id), self._context.timeout_s)

    # -- out

    def post_plain(self, payload: bytes, token: Any) -> None:
        """Send a message that is nothing but its payload."""
        if self.error is not None:
            raise self.error
        now = time.time()
        self.outbox.add_plain(payload, token, now)
        if not self._due or self._timer_at > now + self._wake_s:
            self._posted(now)

    def post_now(self, payload: bytes, token: Any) -> None:
        """Send a message that is nothing but its payload, and what waits before it, at once."""
        if self.error is not None:
            raise self.error
        now = time.time()
        if not self.outbox.add_now(payload, token, now):
            self.outbox.add_plain(payload, token, now)
            self.outbox.flush_if_named(now)
            self._report()  # of one that is too large, say
        self._write()
        if self._timer_at > now + self._wake_s:
            self._arm(now, now + self._wake_s)

    @property
    def idle_link(self) -> Link | None:
        """The connection, if nothing is in flight or waits."""
        return self._link if self.outbox.count == 0 else None

    def post(self, message: OutMessage, token: Any, schema: Schema | None, *, alone: bool = False) -> None:
        """Send a message; `schema` is its own, None for the producer's."""
        if self.error is not None:
            raise self.error
        now = time.time()
        self.outbox.add(message, token, now, schema, alone=alone)
        self._posted(now)
        self._register()

    def _posted(self, now: float) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._written)
        if self._timer_at > now + self._wake_s:
            self._arm(now, now + self._wake_s)

    def _written(self) -> None:
        self._due = False
        self._write()
        self._report()

    def _registered(self) -> None:
        self._write()
        self._report()
        self._register()
        self._arm_due()  # of messages that waited longer than their batch would have

    def _register(self) -> None:
        """Ask for the version of a schema that messages brought along (PIP-43), one at a time."""
        schema, link = self.outbox.wanted, self._link
        if schema is not None and link is not None and not self._registering:
            self._registering = True
            self._context.tasks.spawn(self._ask_version(link, schema), f"register a schema of {self.topic}")

    async def _ask_version(self, link: Link, schema: Schema) -> None:
        try:
            version = await self._context.schemas.register(link, self.topic, schema.schema_info())
            self.outbox.registered(schema, version)
        except PulsarException as error:
            if error.can_retry:
                await asyncio.sleep(_AGAIN_S)
            else:
                self.outbox.unregistered(schema, error)
        finally:
            self._registering = False
        self._registered()

    def _write(self) -> None:
        if self._link is not None:
            self._link.write(self.outbox.take())

    def awaited(self) -> None:
        """A caller waits for the message just posted: send it in this turn, not after the batch's delay."""
        if self.outbox.settings.batching and not self.outbox.urgent:
            self.outbox.urgent = True
            self._loop.call_soon(self.push)

    def push(self) -> None:
        """Send what there is now, unless a receipt that is due will do so."""
        if not self.outbox.in_flight:
            self.flush_now()

    def flush_now(self) -> None:
        """Close the batches and send them."""
        self.outbox.flush_if_named(time.time())
        self._write()
        self._report()

    async def flush(self) -> None:
        """Wait until everything sent so far is settled."""
        self.flush_now()
        if self.outbox.count:
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    def _arm(self, now: float, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(0.0, at - now), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self.outbox.tick(time.time())
        self._written()
        self._arm_due()

    def _arm_due(self) -> None:
        due, now = self.outbox.deadline(), time.time()
        if due is not None and due < self._timer_at and self.error is None:
            self._arm(now, max(due, now + 0.001))

    # -- in

    def received(self, frame: Frame) -> None:
        kind, receipt = frame.type, frame.receipt
        if receipt is not None:
            if not self.outbox.receipt(receipt.sequence_id, receipt.ledger, receipt.entry, receipt.partition):
                self._give_up(ReadError("the broker passed over a message"))
                return
            if self.outbox.urgent:
                self.push()
        elif kind == BaseCommand.SEND_ERROR:
            self._refused(frame.command.send_error)
        elif kind == BaseCommand.REQUEST_RECEIPT:
            self._replied(frame.command.request_receipt)
        self._report()

    def _refused(self, refusal: Any) -> None:
        error = server_error(refusal.error, refusal.message)
        if refusal.error in _ITS_OWN:
            self.outbox.refused(signed(refusal.sequence_id), error)
        elif error.can_retry or refusal.error == 0:
            self._give_up(error)
        else:
            self._end(error)

    def _give_up(self, error: PulsarException) -> None:
        """Use another connection: what has no receipt is sent again, in order."""
        log.warning("the producer of %s connects again: %s", self.topic, error)
        if self._link is not None:
            self._link.abort(error)

    def _replied(self, receipt: Any) -> None:
        data = receipt.request_message_id
        number = receipt.sequence_id if receipt.HasField("sequence_id") else None
        ledger, entry = signed(data.ledgerId), signed(data.entryId)
        token: Any = self.outbox.waits.answered(number, ledger, entry)
        if token is not None:
            index, size = (data.batch_index, data.batch_size) if data.batch_index >= 0 else (-1, 0)
            where = MessageId(self._partition, ledger, entry, index, size, self.topic)
            token.replied(ReplyResult(where, receipt.reply_payload, receipt.is_error))

    def _ids(self, settled: Settled) -> list[MessageId]:
        number = settled.partition
        if number in (-1, self._partition):
            return settled.ids(self._partition, self.topic)
        # The broker chose another partition, by the key.
        return settled.ids(number, str(TopicName.parse(self.topic).base.of_partition(number)))

    def _report(self) -> None:
        results = self.outbox.settled()
        if not results:
            return
        for settled in results:
            error, tokens = settled.error, settled.tokens
            ids: list[Any] = [None] * len(tokens) if error else self._ids(settled)
            for token, message_id in zip(tokens, ids, strict=True):
                try:
                    if token is not None:
                        token(error, message_id)
                except Exception:
                    log.exception("a callback failed")
        self._on_settled()
        if not self.outbox.count and self._idle:
            idle, self._idle = self._idle, []
            for waiting in idle:
                if not waiting.done():
                    waiting.set_result(None)
