"""From a consumer's outbox to frames on its socket.

Messages are taken in small portions and written in groups; a peer that does not read stops the taking, and the
consumer's window, permits and outbox bound the messages taken from the log.

Parts that repeat from message to message (the publish time, the producer, the topic) are encoded once; texts that may need
escaping go through the JSON encoder.
"""

import asyncio
import logging
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET

from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, request_timeout_ms
from penstock.model.message_id import IdWriter, MessageId
from penstock.model.names import TopicName
from penstock.protocols.holding import Holding
from penstock.protocols.proxied import Meter
from penstock.protocols.rates import Allowance
from penstock.wire import entry as wire

from .encryption import context_of
from .frames import ConsumerMessage, encode_base64, format_time
from .socket import Socket

PRODUCERS_MAX: Final = 256  # whose names are remembered as they are written, of one time

_encode: Final = msgspec.json.Encoder().encode


class MessageWriter:
    """Writes the frames of one consumer. `names_topic`: they say which topic (v3)."""

    def __init__(self, *, names_topic: bool) -> None:
        self._names_topic = names_topic
        # What messages of one time have between their properties and their sequence id, by their producers.
        self._middles: dict[str, bytes] = {}
        self._made_of: tuple[int, int, TopicName] | None = None
        # The last properties, as JSON, and what the frame of a request says of its time (PIP-371).
        self._properties: dict[str, str] = {}
        self._written = b"{}"
        self._timeout_ms: int | None = None
        self._ending = b"}"

    def write(self, message: Message, message_id: bytes, topic: TopicName, redeliveries: int) -> bytes:
        """The frame of a message."""
        if message.event_time or message.key is not None or message.encryption:
            return self._write_any(message, message_id.decode(), topic, redeliveries)
        made_of = message.publish_time, redeliveries, topic
        if made_of != self._made_of:
            self._made_of = made_of
            self._middles.clear()
            self._end(message.publish_time)
        properties = message.properties
        if properties is not self._properties and properties != self._properties:
            self._properties = properties
            self._written, self._timeout_ms = _encode(properties), request_timeout_ms(properties)
            self._end(message.publish_time)
        middle = self._middles.get(message.producer_name)
        if middle is None:
            if len(self._middles) >= PRODUCERS_MAX:
                self._middles.clear()
            middle = self._middles[message.producer_name] = self._between(message, topic, redeliveries)
        return b'{"messageId":"%b","payload":"%b","properties":%b%b%d%b%b' % (
            message_id,
            b2a_base64(message.payload, newline=False),
            self._written,
            middle,
            message.sequence_id,
            b"" if message.schema_version is None else b',"schemaVersion":%d' % message.schema_version,
            self._ending,
        )

    def _end(self, publish_time: int) -> None:
        if self._timeout_ms is None:
            self._ending = b"}"
        else:
            deadline = format_time(publish_time + self._timeout_ms).encode()
            self._ending = b',"requestTimeoutMillis":%d,"requestDeadline":"%b"}' % (
                self._timeout_ms,
                deadline,
            )

    def _between(self, message: Message, topic: TopicName, redeliveries: int) -> bytes:
        named = b',"topic":%b' % _encode(str(topic)) if self._names_topic else b""
        if message.producer_name:
            named += b',"producerName":%b' % _encode(message.producer_name)
        time = format_time(message.publish_time).encode()
        return b',"publishTime":"%b","redeliveryCount":%d%b,"sequenceId":' % (
            time,
            redeliveries,
            named,
        )

    def _write_any(self, message: Message, message_id: str, topic: TopicName, redeliveries: int) -> bytes:
        frame = ConsumerMessage(
            message_id=message_id,
            payload=encode_base64(message.payload),
            properties=message.properties,
            publish_time=format_time(message.publish_time),
            redelivery_count=redeliveries,
            event_time=format_time(message.event_time) if message.event_time else UNSET,
            key=UNSET if message.key is None else message.key,
            topic=str(topic) if self._names_topic else UNSET,
            producer_name=message.producer_name or UNSET,
            sequence_id=message.sequence_id,
            schema_version=UNSET if message.schema_version is None else message.schema_version,
        )
        if message.properties:
            timeout_ms = request_timeout_ms(message.properties)
            if timeout_ms is not None:
                frame.request_timeout_millis = timeout_ms
                frame.request_deadline = format_time(message.publish_time + timeout_ms)
        if message.encryption is not None:
            frame.encryption_context = context_of(message.encryption)
        return _encode(frame)


log = logging.getLogger(__name__)

PORTION: Final = 64  # deliveries taken at once; unwritten ones are given back at the end
PORTION_BYTES: Final = 256 * 1024  # of their entries; one more may overdraw it
FRAME_FACTOR: Final = 3  # what an entry takes as long as it waits: itself, decoded, and as base64 in a frame
GROUP_MAX: Final = 64  # frames that are written at once
GROUP_BYTES: Final = 64 * 1024  # of them; one more may overdraw it
SENDS_BEFORE_OTHERS: Final = 64
KNOWN_MAX: Final = 4096  # of ids that were given out; the others are parsed


class FrameBudget:
    """The budget of a consumer whose entries become frames: each counts as what it will take."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def over(self) -> bool:
        return self._holding.over

    def send(self, size: int) -> None:
        self._holding.send(FRAME_FACTOR * size)

    def has_room(self, size: int) -> bool:
        return self._holding.has_room(FRAME_FACTOR * size)

    def reserve(self, size: int) -> bool:
        return self._holding.reserve(FRAME_FACTOR * size)

    def call_when_room(self, callback: Callable[[], None]) -> None:
        self._holding.slow()
        self._holding.call_when_room(callback)


def budget_of(socket: Socket) -> FrameBudget | None:
    """The budget that counts reads for a socket's consumer."""
    return None if socket.holding is None else FrameBudget(socket.holding)


class Deliverer:
    """Writes what a consumer is given. `names_topic`: frames say which topic (v3)."""

    def __init__(self, socket: Socket, consumer: Consumer, meter: Meter, *, names_topic: bool) -> None:
        self._socket = socket
        self._consumer = consumer
        self._meter = meter
        self._taken: deque[Delivery] = deque()
        self._left = 0  # of the first of them: the messages not written yet; 0 for all
        self._writer = MessageWriter(names_topic=names_topic)
        self._ids = IdWriter()
        self._entry: Entry | None = None
        self._messages: list[Message] = []
        self._running: asyncio.Task[None] | None = None
        self._stopped = False  # perhaps before it began: a peer may leave as soon as it came
        self.known: dict[bytes, MessageId] = {}  # ids given out, so that acknowledgements need no parsing

    @property
    def empty(self) -> bool:
        """Whether everything that was taken is written."""
        return not self._taken

    async def run(self) -> None:
        """Write until the consumer is closed, the peer is gone, or `stop`."""
        self._running = asyncio.current_task()
        consumer, taken, socket = self._consumer, self._taken, self._socket
        written = 0
        while not self._stopped and await consumer.ready():
            taken.extend(consumer.take(PORTION, PORTION_BYTES))
            while taken:
                if not socket.writable.is_set():
                    await socket.writable.wait()  # before there are frames that would wait
                    continue  # a seek may have given back the deliveries
                written += await self._write_group()
                if socket.gone:
                    return  # unwritten deliveries go back
                if written >= SENDS_BEFORE_OTHERS:
                    written = 0
                    await asyncio.sleep(0)
            self._entry, self._messages = None, []

    def stop(self) -> None:
        """End `run` now."""
        self._stopped = True
        running, self._running = (
            self._running,
            None,
        )  # a cancelled task has the frames, which know this object
        if running is not None:
            running.cancel()

    def give_back(self) -> None:
        """Give back taken deliveries that were never written: they do not count as delivered."""
        if self._taken:
            if self._left:
                self._taken[0] = msgspec.structs.replace(self._taken[0], mask=self._left)
            self._consumer.give_back(self._taken)
            self._taken.clear()
            self._left = 0

    async def _write_group(self) -> int:
        """Write the next messages that were taken; returns how many. They are given back unless all of them are written."""
        taken, socket = self._taken, self._socket
        first, group = taken[0], Group(socket.allowance)
        self._fill(group)
        if group.frames:
            await socket.send_all(group.frames)
            if socket.gone:
                return 0
        if taken and taken[0] is first:  # else a seek gave it back
            for _ in range(group.done):
                taken.popleft()
            self._left = group.left
            self._meter.deliveries.add(group.messages, group.entry_bytes)
        if group.passed:
            # No consumer could ever acknowledge them: they would stop the subscription for good.
            await self._consumer.acknowledge_all(group.passed)
        if group.paused and socket.allowance is not None:
            await socket.allowance.spend(0, 0)
        return len(group.frames)

    def _fill(self, group: "Group") -> None:
        """Encode taken deliveries as frames until the group is full."""
        left = self._left
        for delivery in self._taken:
            entry = delivery.entry
            if entry is not self._entry:
                self._entry, self._messages = entry, self._decode(delivery)
            if entry.count == 1:
                group.messages += 1
                self._add_one(group, delivery, 0)
            else:
                group.left = self._add(group, delivery, left or delivery.mask)
                if group.left:
                    return
                left = 0
                group.messages += delivery.mask.bit_count()
            group.done += 1
            group.entry_bytes += len(entry.data)
            if group.full:
                return

    def _add(self, group: "Group", delivery: Delivery, mask: int) -> int:
        """Make frames of the messages in `mask` of `_entry`; returns those that the group has no room for."""
        for index in bits_of(mask):
            if group.full:
                return mask >> index << index
            self._add_one(group, delivery, index)
        return 0

    def _add_one(self, group: "Group", delivery: Delivery, index: int) -> None:
        """Make the frame of one message of `_entry`."""
        topic, known, messages = delivery.subscription.topic, self.known, self._messages
        message = messages[index] if index < len(messages) else None
        if message is None or message.compacted_out:
            group.skip(topic.id_of(delivery.entry, index if delivery.entry.count > 1 else -1))
            return
        message_id = topic.id_of(delivery.entry, message.index)
        text = self._ids.write(message_id)
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[text] = message_id
        group.add(self._writer.write(message, text, topic.name, delivery.redeliveries))

    def _decode(self, delivery: Delivery) -> list[Message]:
        try:
            return wire.decode(delivery.entry)
        except PenstockError as error:
            log.error("an entry cannot be read and is passed over", extra={"entry": str(error)})
            return []


class Group:
    """Frames that are written at once, and what becomes of the deliveries then."""

    __slots__ = (
        "_allowance",
        "_room",
        "done",
        "entry_bytes",
        "frames",
        "full",
        "left",
        "messages",
        "passed",
        "paused",
    )

    def __init__(self, allowance: Allowance | None) -> None:
        self.frames: list[bytes] = []
        self.full = False
        self.paused = False  # the role has used up its rate: nothing is sent for some time
        self.done = 0  # deliveries of which nothing is left
        self.messages = 0  # in them
        self.entry_bytes = 0
        self.left = 0  # of the delivery after them: the messages in no frame; 0 for all
        self.passed: list[MessageId] = []  # messages that are not to be seen
        self._allowance = allowance
        self._room = GROUP_BYTES

    def add(self, frame: bytes) -> None:
        """Add a frame; the caller looks at `full` before the next."""
        frames = self.frames
        frames.append(frame)
        self._room -= len(frame)
        if self._allowance is not None and self._allowance.take(0, len(frame)):
            self.paused = self.full = True
        elif len(frames) >= GROUP_MAX or self._room <= 0:
            self.full = True

    def skip(self, message_id: MessageId) -> None:
        """Add a message that is not to be seen."""
        self.passed.append(message_id)
        if len(self.passed) >= GROUP_MAX:
            self.full = True
