"""A producer of whole entries for one topic or partition, connected again when it has to be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.client.aio.context import Context
from penstock.client.aio.link import Link
from penstock.client.aio.tasks import Reconnecting, log, within
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import AlreadyClosed, NotConnected, PulsarException, Timeout, server_error
from penstock.client.session import commands
from penstock.client.session.commands import Publication
from penstock.wire.frames import MESSAGE_BYTES_MAX, Frame
from penstock.wire.metadata import schema_version_number, signed
from penstock.wire.pulsar_pb2 import BaseCommand, CommandCloseProducer, CommandRequestReceipt, ServerError

from .pending import Group, Outcome, Outgoing, PendingEntries, Placed

PENDING_BYTES_MAX: Final = 8 * 1024 * 1024  # without a receipt; one call may overdraw it
JOINED_BYTES_MAX: Final = 4096  # of an entry, at which copying costs less than a buffer more
TIMEOUT_S: Final = 30.0  # for a receipt; Pulsar's sendTimeoutMs

# Errors of one entry: sending it again would not help, and the others are not concerned.
_ITS_OWN: Final = frozenset(
    (
        ServerError.MetadataError,
        ServerError.ChecksumError,
        ServerError.UnsupportedVersionError,
        ServerError.InvalidTopicName,
        ServerError.IncompatibleSchema,
        ServerError.NotAllowedError,
    )
)
# Errors after which the producer cannot go on; after any other it is made again on the broker.
_FINAL: Final = frozenset((ServerError.TopicTerminatedError, ServerError.ProducerFenced))


class EntryProducer:
    """Sends entries in order, and again on a new connection those that have no receipt.

    `given` is a name that the broker has given, to another partition's producer, say. `on_ended` is called when the producer
    cannot go on: it was fenced, the topic was terminated, it may not publish any more. With `once` it ends with its
    connection: nothing is sent twice. `on_reply` gets this producer and the replies to requests that it sent (PIP-371), and `on_lost` is called
    when the broker has dropped the waits for replies. Without `resend`, entries that have no receipt when the connection breaks fail:
    nothing is stored twice.
    """

    def __init__(
        self,
        context: Context,
        how: Publication,
        *,
        given: str = "",
        pending_bytes_max: int = PENDING_BYTES_MAX,
        timeout_s: float = TIMEOUT_S,
        on_ended: Callable[[PulsarException], None] | None = None,
        on_reply: Callable[[EntryProducer, CommandRequestReceipt], None] | None = None,
        on_lost: Callable[[], None] | None = None,
        once: bool = False,
        resend: bool = True,
    ) -> None:
        self.topic = how.topic
        self.name = how.name or given
        self.error: PulsarException | None = None  # why it has ended
        self.schema_version: int | None = None  # of the schema in `how`
        self.topic_epoch: int | None = None  # if it has the topic alone
        self.max_message_size = MESSAGE_BYTES_MAX  # of an entry
        self._context = context
        self._how = how
        self._bytes_max = pending_bytes_max
        self._timeout_s = timeout_s
        self._on_ended = on_ended
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._once = once
        self._resend = resend
        self._id = next(context.numbers)
        self._pending = PendingEntries(self._id)
        self._link: Link | None = None
        self._leaving: Link | None = (
            None  # the link on which the producer must be closed before it is created again
        )
        self._epoch = 0
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._space: asyncio.Future[None] | None = None
        self._newest: asyncio.Future[list[Outcome]] | None = None  # of the last call
        self._reconnecting = Reconnecting(f"the producer of {how.topic}", self._connect, self._end)
        self._task: asyncio.Task[None] | None = None

    # -- coming and going

    async def start(self) -> None:
        """Connect. Raises the error that prevents it."""
        await within(self._connect, self._context.timeout_s)
        self._task = self._context.tasks.spawn(self._reconnecting.run(), f"keep the producer of {self.topic}")

    @property
    def connected(self) -> bool:
        """Whether the broker has the producer now."""
        return self._link is not None

    @property
    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker has under this name, -1 without one."""
        return self._pending.last_sequence_id

    @property
    def idle(self) -> bool:
        """Whether everything that was sent has a receipt."""
        return not self._pending

    async def _connect(self) -> None:
        await self._leave()
        link = await self._context.lookup.link(self.topic)
        link.producers[self._id] = self
        waits = self._how.access_mode is ProducerAccessMode.WaitForExclusive
        command = commands.producer(self._id, self._how, self._epoch, self.topic_epoch, self.name or None)
        try:
            answer = await link.ask(command, None if waits else self._context.timeout_s)
        except BaseException as error:
            link.producers.pop(self._id, None)
            if not link.closed and isinstance(error, (Timeout, asyncio.CancelledError)):
                self._context.tasks.spawn(self._withdraw(link), f"withdraw the producer of {self.topic}")
            raise
        if link.producers.get(self._id) is not self:
            raise NotConnected("the broker closed the producer")
        self._epoch += 1
        self.name = answer.producer_name
        self.schema_version = schema_version_number(answer.schema_version)
        self.max_message_size = link.session.max_message_size
        if answer.HasField("topic_epoch"):
            self.topic_epoch = answer.topic_epoch
        pending = self._pending
        pending.last_sequence_id = max(pending.last_sequence_id, answer.last_sequence_id)
        self._link = link
        link.write(pending.again())

    async def _leave(self) -> None:
        """Close the producer at the broker, if it must be created again: receipts come until it is closed."""
        link, self._leaving = self._leaving, None
        if link is not None and not link.closed:
            try:
                await self._withdraw(link)
            finally:
                link.producers.pop(self._id, None)

    async def _withdraw(self, link: Link) -> None:
        try:
            await link.ask(CommandCloseProducer(producer_id=self._id), self._context.timeout_s)
        except PulsarException as error:
            log.debug("the producer of %s could not be closed: %s", self.topic, error)

    def lost(self, link: Link, error: PulsarException) -> None:
        """The connection is gone, or the broker closed the producer."""
        if self._link is link:  # else an attempt notices it itself
            self._link = None
            if self._on_lost is not None:
                self._on_lost()
            if self._once:
                self._end(error)
                return
            if link.closed and not self._resend:
                self._pending.fail(error)
                self._make_space()
            self._reconnecting.lost()

    def _restart(self, error: PulsarException) -> None:
        """Make the producer again: what has no receipt is sent again, in order."""
        if self._once:
            link = self._link
            self._end(error)
            if link is not None:
                self._context.tasks.spawn(self._withdraw(link), f"withdraw the producer of {self.topic}")
        elif self._link is not None:
            log.warning("the producer of %s is made again: %s", self.topic, error)
            self._leaving, self._link = self._link, None
            if self._on_lost is not None:
                self._on_lost()
            self._reconnecting.lost()

    def _end(self, error: PulsarException) -> None:
        if self.error is None:
            self._close(error)
            if self._on_ended is not None:
                self._on_ended(error)

    def _close(self, error: PulsarException) -> None:
        self.error = error
        if self._link is not None:
            self._link.producers.pop(self._id, None)
            self._link = None
        if self._expiry is not None:
            self._expiry.cancel()
        self._pending.fail(error)
        self._make_space()

    async def close(self) -> None:
        """Leave the topic. Sent messages get their receipts before, if there is a connection; else they fail."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        link = self._link or self._leaving
        try:
            if self.error is None and link is not None and not link.closed:
                await self._withdraw(link)
        finally:
            if link is not None:
                link.producers.pop(self._id, None)
            if self.error is None:
                self._close(AlreadyClosed("the producer is closed"))

    # -- out

    async def room(self) -> None:
        """Wait until less than the bound is without a receipt. Callers go on in the order in which they came: each sends
        before it awaits anything else. Raises why the producer has ended."""
        if self.error is not None:
            raise self.error
        async with self._turn:
            while self._pending.size >= self._bytes_max:
                self._space = self._loop.create_future()
                await self._space
                if self.error is not None:
                    raise self.error

    def send_all(self, entries: Sequence[Outgoing]) -> asyncio.Future[list[Outcome]]:
        """Send entries, at least one; the future gets an outcome for each. Raises why the producer has ended."""
        if self.error is not None:
            raise self.error
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        now = self._loop.time()
        frames = self._pending.add(entries, Group(len(entries), future), now)
        self._newest = future
        if self._link is not None:
            # A socket takes one buffer faster than many small ones.
            size = sum([len(entry.data) for entry in entries])
            small = size <= len(entries) * JOINED_BYTES_MAX
            self._link.write([b"".join(frames)] if small else frames)
        if self._expiry is None and self._timeout_s > 0:
            self._expiry = self._loop.call_at(now + self._timeout_s, self._expire)
        return future

    def withdraw(self, sequence_id: int) -> None:
        """The requester waits no longer for the reply to its request."""
        if self._link is not None:
            receipt = CommandRequestReceipt(reply_to_producer_id=self._id, sequence_id=sequence_id)
            self._link.write([commands.framed(receipt)])

    async def settled(self) -> None:
        """Wait until everything sent so far has a receipt, or has failed."""
        while not self.idle and self._newest is not None:
            await asyncio.wait((self._newest,))

    async def send(self, entry: Outgoing) -> Placed:
        """Send one entry and return its position. Raises the error of an entry that was not stored."""
        await self.room()
        (outcome,) = await self.send_all((entry,))
        if isinstance(outcome, PulsarException):
            raise outcome
        return outcome

    def _expire(self) -> None:
        self._expiry = None
        error = Timeout(f"no receipt within {self._timeout_s:g} s")
        oldest = self._pending.expire(self._loop.time() - self._timeout_s, error)
        if oldest is not None:
            self._expiry = self._loop.call_at(oldest + self._timeout_s, self._expire)
        self._make_space()

    def _make_space(self) -> None:
        space = self._space
        if space is not None and (self.error is not None or self._pending.size < self._bytes_max):
            self._space = None
            if not space.done():
                space.set_result(None)

    # -- in

    def received(self, frame: Frame) -> None:
        """A receipt, its error, or a reply."""
        receipt = frame.receipt
        if receipt is not None:
            if not self._pending.receipt(receipt.sequence_id, receipt.ledger, receipt.entry):
                self._restart(NotConnected("the broker passed over an entry"))
        elif frame.type == BaseCommand.SEND_ERROR:
            self._refused(frame.command.send_error)
        elif frame.type == BaseCommand.REQUEST_RECEIPT and self._on_reply is not None:
            self._on_reply(self, frame.command.request_receipt)
        if self._space is not None:
            self._make_space()

    def _refused(self, refusal: Any) -> None:
        error = server_error(refusal.error, refusal.message)
        if refusal.error in _ITS_OWN:
            self._pending.refused(signed(refusal.sequence_id), error)
        elif refusal.error in _FINAL:
            self._end(error)
        else:
            self._restart(error)
