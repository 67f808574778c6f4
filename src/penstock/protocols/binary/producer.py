"""A producer on a connection: entries in, receipts out in their order, commits grouped.

SEND is put in a queue and nothing else; one task a producer takes what has gathered, appends it in one go and
writes the receipts. What comes while it waits for the store is the next group.
"""

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Final

import msgspec

from penstock.broker.producer import Item, Placement, Producer, ReplyOrError, Request
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, PlainMessages
from penstock.model.message_id import MessageId
from penstock.model.worker import NUMBERED_PREFIX
from penstock.wire import entry as wire
from penstock.wire.entry import admit
from penstock.wire.frames import command_of, encode, send_receipt
from penstock.wire.pulsar_pb2 import CommandRequestReceipt, CommandSend

from . import answers
from .peer import Peer

log = logging.getLogger(__name__)

GROUP_BYTES_MAX: Final = 8 * 1024 * 1024  # appended in one go
# While the backlog is beyond its quota, the topic beyond its rate, or the store takes nothing, producers are
# disconnected, as by Pulsar: they learn why when they reconnect, and send again what was not stored. If the entries
# behind it were stored now, they would come before it, or, after a crash, instead of it: its sequence ids would be
# behind the highest.
_BLOCKED: Final = frozenset(
    (
        ErrorKind.BACKLOG_QUOTA_HOLD,
        ErrorKind.BACKLOG_QUOTA_EXCEPTION,
        ErrorKind.TOO_MANY_REQUESTS,
        ErrorKind.STORAGE_FULL,
        ErrorKind.STORAGE_FAILED,
        ErrorKind.UNAVAILABLE,
    )
)
PENDING_BYTES_MAX: Final = 32 * 1024 * 1024  # of one producer, not stored yet; then nothing more is read
_MARK: Final = REQUEST_TIMEOUT_PROPERTY.encode()


class Sending(msgspec.Struct, gc=False):
    """One waiting SEND: an entry, or its error."""

    sequence_id: int
    highest: int
    size: int
    submitted: Item[NewEntry] | None = None
    refused: PenstockError | None = None
    each: PlainMessages | None = None  # each is stored as an entry


class ProducerHandler:
    """One producer of a connection."""

    def __init__(
        self,
        peer: Peer,
        producer_id: int,
        producer: Producer,
        opened: "dict[int, ProducerHandler]",
        disconnected: set[int],
    ) -> None:
        """`opened` has the connection's producers, this one among them; `disconnected` the numbers of those that
        the broker closed."""
        self.producer = producer
        self._peer = peer
        self._id = producer_id
        self._opened = opened
        self._disconnected = disconnected
        self._waiting: deque[Sending] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._requests: dict[int, set[Request]] = {}  # by the sequence ids that the client knows them by
        self._takes_requests = peer.features.supports_request_reply
        self._numbered = peer.of_worker and producer.name.startswith(NUMBERED_PREFIX)
        self._why = f"producer {producer_id} waits for the store"
        self._task = peer.tasks.spawn(self._run(), f"publish to {producer.topics[0].name}")
        producer.ousted = self._disconnect

    # -- in

    def send(self, command: CommandSend, data: bytes) -> None:
        """Take a SEND; it is answered when it is stored, after those before it."""
        sending = Sending(command.sequence_id, command.highest_sequence_id, len(data))
        try:
            entry = admit(data)
            if entry.producer != self.producer.name and not self._peer.of_worker:
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER,
                    f"the message says it is from producer {entry.producer!r}, not {self.producer.name!r}",
                )
            if command.entry_each:
                sending.each = self._plain(entry)
                self._enqueue(sending)
                return
            # Only the last chunk of a message counts for deduplication: the others know whose they are.
            chunk_of = command.sequence_id if entry.sequence_id < 0 else -1
            request = self._request(entry) if self._takes_requests else None
            named = entry.producer if self._numbered else None
            sending.submitted = Item(entry, named, request=request, chunk_of=chunk_of)
        except PenstockError as refused:
            sending.refused = refused
        self._enqueue(sending)

    def _plain(self, entry: NewEntry) -> PlainMessages:
        """The messages of a batch, each to store as an entry. Raises BAD_PARAMETER, also for clients that are not workers."""
        stored = Entry(0, 0, 0, entry.count, entry.publish_time, entry.deliver_at, entry.data)
        found = wire.plain(stored) if self._peer.of_worker else None
        if found is None:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "these messages cannot be stored as an entry each")
        return found

    def _enqueue(self, sending: Sending) -> None:
        self._waiting.append(sending)
        self._bytes += sending.size
        self._peer.pend(sending.size)
        self._idle.clear()
        self._more.set()
        if self._bytes >= PENDING_BYTES_MAX:
            self._peer.output.hold(self._why)

    def _request(self, entry: NewEntry) -> Request | None:
        """Begin to wait for the reply if an entry is a request (PIP-371)."""
        asked = request_in(entry)
        if asked is None:
            return None
        sequence_id, timeout_ms = asked
        topic = self.producer.topics[0].name.base
        # The names of the stored message, by which an early reply is found: a worker's connection has another name.
        request = self._peer.broker.requests.wait((str(topic), entry.producer, sequence_id), timeout_ms)
        self._requests.setdefault(sequence_id, set()).add(request)
        request.call_when_ended(partial(self._replied, sequence_id))
        return request

    def withdraw(self, sequence_id: int) -> None:
        """The client waits no longer for the reply to a request."""
        for request in self._requests.pop(sequence_id, ()):
            request.withdraw()

    def _replied(self, sequence_id: int, request: Request, got: ReplyOrError) -> None:
        same = self._requests[sequence_id]
        same.discard(request)
        if not same:
            del self._requests[sequence_id]
        if isinstance(got, PenstockError):
            return  # timed out, or not stored: the client knows from its own clock, or its receipt
        self._peer.send(
            CommandRequestReceipt(
                reply_to_producer_id=self._id,
                request_message_id=answers.id_data(got.request_id),
                reply_payload=got.content,
                is_error=got.is_error,
                sequence_id=sequence_id,
                schema_version=got.schema_version,
            )
        )

    # -- out

    async def _run(self) -> None:
        while True:
            while not self._waiting:
                self._idle.set()
                self._more.clear()
                await self._more.wait()
            await self._publish_waiting()

    async def _publish_waiting(self) -> None:
        """Publish and answer. This is not part of `_run`, whose frame would hold the messages while it waits for more."""
        group = self._take()
        try:
            results = await self._publish(group)
        except PenstockError as error:
            results = [error] * len(group)
        except Exception:
            log.exception("publishing failed")
            results = [PenstockError(ErrorKind.INTERNAL, "the message could not be stored")] * len(group)
        blocked = next((r for r in results if isinstance(r, PenstockError) and r.kind in _BLOCKED), None)
        if blocked is not None:
            self.producer.close(blocked)
        self._answer(group, deque(results))
        done = sum(sending.size for sending in group)
        self._bytes -= done
        self._peer.stored(done)
        if self._bytes < PENDING_BYTES_MAX // 2:
            self._peer.output.release(self._why)

    async def _publish(self, group: list[Sending]) -> list[MessageId | PenstockError]:
        each = group[0].each
        if each is None:
            return await self.producer.publish_entries(
                [s.submitted for s in group if s.submitted is not None]
            )
        placed = await self.producer.publish_plain(each.payloads, each.schema_version, batch=False)
        if not isinstance(placed, Placement):
            return placed[:1]
        return [MessageId(placed.ledger, placed.entry_id, placed.topic.name.partition)]

    def _take(self) -> list[Sending]:
        """One publish: entries, or one batch whose messages become entries."""
        group: list[Sending] = []
        size = 0
        while self._waiting and size < GROUP_BYTES_MAX:
            if group and (group[0].each is not None or self._waiting[0].each is not None):
                break
            sending = self._waiting.popleft()
            size += sending.size
            group.append(sending)
        return group

    def _answer(self, group: list[Sending], results: deque[MessageId | PenstockError]) -> None:
        if self.producer.close_reason is not None:
            return  # the client got CLOSE_PRODUCER: it has to send again
        frames: list[bytes] = []
        for sending in group:
            done = sending.submitted is not None or sending.each is not None
            result = results.popleft() if done else sending.refused
            if isinstance(result, MessageId):
                frames.append(send_receipt(self._id, sending.sequence_id, result, sending.highest))
            elif result is not None:
                # Of a batch its highest sequence id, as Pulsar does and clients expect.
                number = max(sending.sequence_id, sending.highest)
                frames.append(encode(command_of(answers.send_error(self._id, number, result))))
        self._peer.output.write(b"".join(frames))

    # -- the end

    def review(self) -> None:
        """Permissions changed: leave the topic if it may not be published to any more."""
        try:
            self._peer.admitted.may_produce(self.producer.topics[0].name)
        except PenstockError as error:
            self.producer.close(error)

    def _disconnect(self, reason: PenstockError) -> None:
        """The broker closed the producer; the client learns why when it creates it again."""
        if self._opened.get(self._id) is self:
            del self._opened[self._id]
            self._disconnected.add(self._id)
            self._peer.send(answers.close_producer(self._id))
            self._peer.tasks.spawn(self.close(), "close a producer")

    async def finish(self) -> None:
        """Complete when everything sent so far is answered."""
        await self._idle.wait()

    async def close(self) -> None:
        """Store sent entries, then leave the topic; waits for replies end."""
        await self.finish()
        self._task.cancel()
        for sequence_id in list(self._requests):
            self.withdraw(sequence_id)
        self.producer.close()
        self._peer.output.release(self._why)


def request_in(entry: NewEntry) -> tuple[int, int] | None:
    """The sequence id and the timeout (ms) of an entry that is a request, else None (PIP-371).

    A request is sent alone, or is the first with the property in an uncompressed batch. Raises
    BAD_PARAMETER for a timeout that is not a number.
    """
    if _MARK not in entry.data:
        return None
    stored = Entry(0, 0, 0, entry.count, entry.publish_time, entry.deliver_at, entry.data)
    for message in wire.decode(stored):
        text = message.properties.get(REQUEST_TIMEOUT_PROPERTY)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{REQUEST_TIMEOUT_PROPERTY} is no number")
        return message.sequence_id, int(text)
    return None
