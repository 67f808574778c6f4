"""One consumer's messages from the wire to the application, over any number of connections; chunks become one message.

Permits bound the messages in flight: the broker sends no more than it was allowed to, and is allowed more as the
application takes messages. A message whose schema has to be fetched first waits, and all after it, so that
values are there when messages are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

import msgspec

from penstock.client.enums import ConsumerCryptoFailureAction
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.schema.schema import Schema
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message as Stored
from penstock.model.schema import SchemaInfo
from penstock.wire import entry as wire
from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX, decompress
from penstock.wire.contents import parse, seal
from penstock.wire.frames import Frame
from penstock.wire.metadata import signed
from penstock.wire.pulsar_pb2 import CommandAck, MessageMetadata

from . import commands
from .acks import Acks, Place, bits_of, wire_place
from .redelivery import Receiving, Redelivery


class Opened(NamedTuple):
    """The messages of an entry. `permits` is what it cost; `places` are the parts of a chunked message.

    `invalid` says why it cannot be handed on (`CommandAck.ValidationError`), None when it can. `hidden` says
    that it stays as it is: it is encrypted.
    """

    messages: list[Stored]
    permits: int
    places: tuple[Place, ...] = ()
    invalid: int | None = None
    hidden: bool = False


def open_entry(data: bytes, place: Place, chunks: Chunks, crypto: ConsumerCryptoFailureAction) -> Opened:
    """Open an entry; a part of a larger message opens to nothing until the last one is there."""
    try:
        metadata, payload = parse(data)
        if metadata.encryption_keys:
            return _encrypted(metadata, place, data, crypto)
        if metadata.num_chunks_from_msg > 1:
            return _chunk(metadata, payload, place, chunks)
        messages = wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
        return Opened(messages, len(messages))
    except PenstockError as error:
        reason = CommandAck.ChecksumMismatch
        if error.kind is not ErrorKind.CHECKSUM:
            reason = CommandAck.BatchDeSerializeError
        return Opened([], 1, invalid=reason)


def _encrypted(
    metadata: MessageMetadata, place: Place, data: bytes, crypto: ConsumerCryptoFailureAction
) -> Opened:
    permits = max(1, metadata.num_messages_in_batch)
    if crypto is ConsumerCryptoFailureAction.CONSUME:
        return Opened(wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data)), permits)
    if crypto is ConsumerCryptoFailureAction.DISCARD:
        return Opened([], permits, invalid=CommandAck.DecryptionError)
    return Opened([], permits, hidden=True)


def _chunk(metadata: MessageMetadata, payload: bytes, place: Place, chunks: Chunks) -> Opened:
    whole = chunks.add(metadata, payload, place)
    if whole is None:
        return Opened([], 1)
    payload = decompress(metadata.compression, whole.payload, metadata.uncompressed_size)
    for field in ("num_chunks_from_msg", "chunk_id", "total_chunk_msg_size", "uuid", "compression"):
        metadata.ClearField(field)
    head = metadata.SerializeToString()
    data = seal(len(head).to_bytes(4, "big") + head + payload)
    messages = wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
    return Opened(messages, 1, whole.places)


class _Parts(msgspec.Struct):
    total: int  # bytes of the whole message
    data: list[bytes] = []
    places: list[Place] = []


class Whole(NamedTuple):
    """A joined message: its payload, still compressed, and the ids of its chunks."""

    payload: bytes
    places: tuple[Place, ...]


class Chunks:
    """What has come of messages that are not whole yet, `pending_max` of them."""

    def __init__(self, pending_max: int) -> None:
        self._pending_max = max(1, pending_max)
        self._parts: OrderedDict[str, _Parts] = OrderedDict()
        self.dropped: list[Place] = []  # parts of messages that were given up for newer ones

    def add(self, metadata: MessageMetadata, payload: bytes, place: Place) -> Whole | None:
        """The message that this part completes. A part whose predecessors are missing is passed over."""
        name, number = metadata.uuid, metadata.chunk_id
        if number == 0:
            self._parts.pop(name, None)
            self._parts[name] = _Parts(min(metadata.total_chunk_msg_size, UNCOMPRESSED_BYTES_MAX))
            while len(self._parts) > self._pending_max:
                self.dropped += self._parts.popitem(last=False)[1].places
        parts = self._parts.get(name)
        if parts is None or number != len(parts.data):
            return None  # sent twice, or its beginning was never here
        parts.data.append(payload)
        parts.places.append(place)
        if sum(map(len, parts.data)) > parts.total:
            del self._parts[name]
            return None
        if number + 1 < metadata.num_chunks_from_msg:
            return None
        del self._parts[name]
        return Whole(b"".join(parts.data), tuple(parts.places))

    def clear(self) -> None:
        """A new connection: they are redelivered from their first chunk."""
        self._parts.clear()
        self.dropped.clear()


class Inbox:
    """`wanted` is a schema version to fetch; `rewound` says that queued messages will be redelivered."""

    def __init__(
        self, consumer_id: int, topic: str, partition: int, settings: Receiving, schema: Schema
    ) -> None:
        self.consumer_id = consumer_id
        self.topic = topic
        self.partition = partition
        self.attached = False
        self.wanted: int | None = None
        self.rewound = False
        self._settings = settings
        self._schema = schema
        self._acks = Acks(consumer_id, by_index=settings.batch_index_ack)
        self._redelivery = Redelivery(settings)
        self._chunks = Chunks(settings.chunked_max)
        self._writers: dict[int, SchemaInfo | None] = {}
        self._waiting: deque[Message] = deque()
        self._arrived: list[Message] = []
        self._dead: list[list[Message]] = []
        self._out: list[bytes] = []
        self._used = 0
        self._start: MessageId | None = None
        self._inclusive = False
        self.muted = False  # while a seek is on its way, what comes is of before
        self._muted_count = 0

    def start_at(self, start: MessageId | None, *, inclusive: bool) -> None:
        """Pass over what comes before `start`, and over itself unless it is included."""
        plain = start is None or start in (MessageId.earliest, MessageId.latest)
        self._start, self._inclusive = None if plain else start, inclusive

    def attach(self) -> None:
        """The broker has the consumer: it may send."""
        self.attached, self.muted, self._used = True, False, 0
        self._out.clear()
        if self._settings.queue_size > 0:
            self._out.append(commands.flow(self.consumer_id, self._settings.queue_size))

    def detach(self) -> None:
        """The connection is lost; unacknowledged messages are redelivered."""
        self.attached, self.wanted = False, None
        self._out.clear()
        self._forget()
        self._acks.restart()

    def sought(self, dropped: int) -> None:
        """The broker has moved the subscription; `dropped` left the queue unread.

        One that keeps the connection allows itself a queue's worth again, as nothing is in ours any more. It
        cannot know of a queue of one or none.
        """
        self._forget()
        self._used = 0
        if self.attached and self._settings.queue_size <= 1 and dropped + self._muted_count > 0:
            self._out.append(commands.flow(self.consumer_id, 1))
        self.muted, self._muted_count = False, 0

    def _forget(self) -> None:
        self._waiting.clear()
        self._arrived.clear()
        self._chunks.clear()
        self._redelivery.clear()

    def take(self) -> list[bytes]:
        """The bytes to write now."""
        if not self.attached:
            return []
        out, self._out = self._out, []
        return out

    def arrived(self) -> list[Message]:
        """Messages for the application's queue."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def dead(self) -> list[list[Message]]:
        """Messages, by entry, that go to the dead-letter topic, to be acknowledged when they are there."""
        dead, self._dead = self._dead, []
        return dead

    def deliver(self, frame: Frame) -> None:
        """An entry came."""
        command = frame.command.message
        place = (signed(command.message_id.ledgerId), signed(command.message_id.entryId))
        opened = open_entry(frame.entry, place, self._chunks, self._settings.crypto)
        if self._chunks.dropped:
            self._drop_chunked()
        if self.muted:
            self._muted_count += opened.permits
            return
        if opened.invalid is not None:
            self._out.append(
                commands.acknowledge(self.consumer_id, [wire_place(place)], validation_error=opened.invalid)
            )
        open_bits = bits_of(list(command.ack_set)) if command.ack_set else None
        messages = self._visible(opened, place, open_bits, command.redelivery_count)
        if opened.permits > len(messages):
            self._passed_over(opened.permits - len(messages))
        if not messages:
            return
        if self._redelivery.given_up(command.redelivery_count):
            self._passed_over(len(messages))
            self._dead.append(messages)
            return
        self._redelivery.arrived(place, messages, command.redelivery_count)
        self._pass_on(messages)

    def _drop_chunked(self) -> None:
        """A split message was given up for newer ones; it is acknowledged if the application wants that."""
        places, self._chunks.dropped = self._chunks.dropped, []
        if self._settings.ack_oldest_chunked:
            self._out.append(commands.acknowledge(self.consumer_id, [wire_place(place) for place in places]))

    def _visible(
        self, opened: Opened, place: Place, open_bits: int | None, redeliveries: int
    ) -> list[Message]:
        count = len(opened.messages)
        after = -2  # the index after which messages of this entry are wanted
        if self._start is not None and place <= (self._start.ledger_id(), self._start.entry_id()):
            after = self._after(place, count)
        topic, partition, schema = self.topic, self.partition, self._schema
        ledger, entry = place
        messages: list[Message] = []
        passed = 0
        for stored in opened.messages:
            index = stored.index
            if (
                index <= after
                or (open_bits is not None and index >= 0 and not open_bits >> index & 1)
                or stored.compacted_out
            ):
                passed |= 1 << max(index, 0)
                continue
            message_id = MessageId(
                partition, ledger, entry, index, count if index >= 0 else 0, topic, opened.places
            )
            messages.append(Message(stored, message_id, topic, redeliveries, schema))
        self._acks.arrived(place, None if not passed else ((1 << count) - 1) & ~passed)
        return messages

    def _after(self, place: Place, count: int) -> int:
        start = self._start
        assert start is not None
        if place < (start.ledger_id(), start.entry_id()):
            return count
        index = start.batch_index()
        if index < 0:  # the whole entry
            return -2 if self._inclusive else count
        return index - 1 if self._inclusive else index

    def _pass_on(self, messages: list[Message]) -> None:
        if not self._schema.needs_writer:
            self._arrived += messages
            return
        self._waiting += messages
        self._release()

    def writer(self, version: int, info: SchemaInfo | None) -> None:
        """The schema `wanted`; None when the broker has none."""
        self._writers[version] = info
        self._release()

    def _release(self) -> None:
        self.wanted = None
        while self._waiting:
            version = self._waiting[0]._stored.schema_version
            if version is not None and version not in self._writers:
                self.wanted = version
                return
            message = self._waiting.popleft()
            message._writer = None if version is None else self._writers[version]
            self._arrived.append(message)

    def consumed(self, count: int) -> None:
        """So many messages left the queue: the broker may send as many more, in steps of half the queue."""
        self._used += count
        if self.attached and 0 < self._settings.queue_size <= 2 * self._used:
            self._out.append(commands.flow(self.consumer_id, self._used))
            self._used = 0

    def _passed_over(self, count: int) -> None:
        """So many messages were not for the application: a waiting `receive` still waits."""
        if self._settings.queue_size == 0:
            self.ask(count)
        else:
            self.consumed(count)

    def ask(self, count: int = 1) -> None:
        """Let the broker send, if there is no queue."""
        self._out.append(commands.flow(self.consumer_id, count))

    def handed_out(self, message_id: MessageId, now: float) -> None:
        """The application has a message."""
        self._redelivery.handed_out((message_id.ledger_id(), message_id.entry_id()), now)

    def acknowledge(self, message_id: MessageId, now: float) -> None:
        """A message is done."""
        self._redelivery.acknowledged(self._acks.add(message_id, now))
        if self._acks.full():
            self.flush()

    def acknowledge_up_to(self, message_id: MessageId, now: float) -> None:
        """A message and all before it are done."""
        last = self._acks.add_up_to(message_id, now)
        if last is not None:
            self._redelivery.acknowledged_up_to(last)

    def reply(self, message_id: MessageId, to: str, content: bytes, *, is_error: bool, now: float) -> None:
        """A request is done, with this result for its caller."""
        place = (message_id.ledger_id(), message_id.entry_id())
        data = wire_place(place)
        index, size = message_id.batch_index(), message_id.batch_size()
        if index >= 0:
            data.batch_index, data.batch_size = index, size
            data.ack_set.extend(wire_place(place, ((1 << size) - 1) & ~(1 << index)).ack_set)
        self._out.append(
            commands.acknowledge(
                self.consumer_id, [data], reply_to_client=to, reply_payload=content, reply_is_error=is_error
            )
        )
        done = self._acks.add(message_id, now)
        self._redelivery.acknowledged(done)

    def refuse(self, message_id: MessageId, now: float) -> None:
        """Redeliver a message after a delay."""
        self._redelivery.refuse((message_id.ledger_id(), message_id.entry_id()), now)

    def redeliver_all(self) -> None:
        """Redeliver all unacknowledged messages now."""
        self._out += self._acks.flush()
        self._redelivery.clear()
        self._waiting.clear()
        self._arrived.clear()
        self._out.append(commands.redeliver(self.consumer_id, []))
        self.rewound = True

    def deadline(self) -> float | None:
        """When `tick` has something to do."""
        times = [time for time in (self._acks.deadline(), self._redelivery.deadline()) if time is not None]
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Send acknowledgements that have waited long enough; ask for redelivery of messages whose time-out is over."""
        due = self._acks.deadline()
        if due is not None and now >= due:
            self.flush()
        again, dead = self._redelivery.due(now)
        for _, messages in dead:
            self._dead.append([message for message in messages if self._acks.is_open(message._id)])
        if not again:
            return
        self._out += self._acks.flush()
        if self._settings.shared:
            self._out.append(commands.redeliver(self.consumer_id, [wire_place(place) for place in again]))
        else:
            self.redeliver_all()

    def flush(self) -> None:
        """Send the acknowledgements there are."""
        if self.attached:
            self._out += self._acks.flush()
