"""From a consumer's outbox to frames on its socket.

Messages are taken in small portions and written one by one; a peer that does not read stops the taking, and the
consumer's window, permits and outbox bound what is taken from the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from msgspec import UNSET

from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.broker.entry_format import EntryFormat
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, request_timeout_ms
from penstock.model.message_id import MessageId
from penstock.protocols.holding import Holding
from penstock.protocols.proxied import Meter

from .encryption import context_of
from .frames import ConsumerMessage, encode_base64, format_time, write
from .socket import Socket

log = logging.getLogger(__name__)

PORTION: Final = 16  # deliveries taken at once; what is taken and not written is given back at the end
PORTION_BYTES: Final = 256 * 1024  # of their entries; one more may overdraw it
FRAME_FACTOR: Final = 3  # what an entry takes as long as it waits: itself, decoded, and as base64 in a frame
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
    """Where a socket's consumer counts what is read for it."""
    return None if socket.holding is None else FrameBudget(socket.holding)


class Deliverer:
    """Writes what a consumer is given. `names_topic`: frames say which topic (v3)."""

    def __init__(
        self, socket: Socket, consumer: Consumer, wire: EntryFormat, meter: Meter, *, names_topic: bool
    ) -> None:
        self._socket = socket
        self._consumer = consumer
        self._wire = wire
        self._meter = meter
        self._names_topic = names_topic
        self._taken: deque[Delivery] = deque()
        self._left = 0  # of the first of them: the messages not written yet
        self._entry: Entry | None = None
        self._messages: list[Message] = []
        self._running: asyncio.Task[None] | None = None
        self._stopped = False  # perhaps before it began: a peer may leave as soon as it came
        self.known: dict[str, MessageId] = {}  # ids given out, so that acknowledgements need no parsing

    @property
    def empty(self) -> bool:
        """Whether everything that was taken is written."""
        return not self._taken

    async def run(self) -> None:
        """Write until the consumer is closed, the peer is gone, or `stop`."""
        self._running = asyncio.current_task()
        consumer, taken, writable = self._consumer, self._taken, self._socket.writable
        written = 0
        while not self._stopped and await consumer.ready():
            taken.extend(consumer.take(PORTION, PORTION_BYTES))
            while taken:
                delivery = taken[0]
                self._left = delivery.mask
                for index in _bits(delivery.mask):
                    if not writable.is_set():
                        await writable.wait()  # before there is a frame that would wait
                        if not taken:
                            break  # a seek gave it back meanwhile
                    frame = await self._frame(delivery, index)
                    if frame is not None:
                        await self._socket.send(frame)
                        if self._socket.gone:
                            return  # it was not written: it goes back with the rest
                        written += 1
                    self._left &= ~(1 << index)
                    if frame is not None and self._socket.allowance is not None:
                        await self._socket.allowance.spend(0, len(frame))
                    if not written % SENDS_BEFORE_OTHERS:
                        await asyncio.sleep(0)
                    if not taken:
                        break  # a seek gave it back meanwhile
                if taken and taken[0] is delivery:
                    taken.popleft()
                    self._meter.deliveries.add(delivery.count, len(delivery.entry.data))
            self._entry, self._messages = None, []

    def stop(self) -> None:
        """End `run` now."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()

    def give_back(self) -> None:
        """Return what was taken but never written: it does not count as delivered."""
        if self._taken:
            first = self._taken.popleft()
            if self._left:
                self._taken.appendleft(msgspec.structs.replace(first, mask=self._left))
            self._consumer.give_back(self._taken)
            self._taken.clear()

    async def _frame(self, delivery: Delivery, index: int) -> str | None:
        """A message as JSON; None for one that is not to be seen."""
        entry = delivery.entry
        if entry is not self._entry:
            self._entry, self._messages = entry, self._decode(delivery)
        message = self._messages[index] if index < len(self._messages) else None
        if message is None or message.compacted_out:
            # No consumer could ever acknowledge it: it would stop the subscription for good.
            await self._consumer.acknowledge(delivery.topic.id_of(entry, index if entry.count > 1 else -1))
            return None
        topic = delivery.topic
        message_id = topic.id_of(entry, message.index)
        text = str(message_id)
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[text] = message_id
        frame = ConsumerMessage(
            message_id=text,
            payload=encode_base64(message.payload),
            properties=message.properties,
            publish_time=format_time(message.publish_time),
            redelivery_count=delivery.redeliveries,
            event_time=format_time(message.event_time) if message.event_time else UNSET,
            key=UNSET if message.key is None else message.key,
            topic=str(topic.name) if self._names_topic else UNSET,
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
        return write(frame)

    def _decode(self, delivery: Delivery) -> list[Message]:
        try:
            return self._wire.decode(delivery.entry)
        except PenstockError as error:
            log.error("an entry cannot be read and is passed over", extra={"entry": str(error)})
            return []


def _bits(mask: int) -> Iterator[int]:
    if mask & (mask + 1) == 0:  # all from the first on, as nearly always
        yield from range(mask.bit_length())
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
