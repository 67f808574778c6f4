"""From a consumer's outbox to frames on its socket.

Messages are taken in small portions and written in groups; a peer that does not read stops the taking, and the
consumer's window, permits and outbox bound what is taken from the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.broker.entry_format import EntryFormat
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.message_id import MessageId
from penstock.protocols.holding import Holding
from penstock.protocols.proxied import Meter

from .messages import MessageWriter
from .socket import Socket

log = logging.getLogger(__name__)

PORTION: Final = 64  # deliveries taken at once; what is taken and not written is given back at the end
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
        self._taken: deque[Delivery] = deque()
        self._left = 0  # of the first of them: the messages not written yet; 0 for all
        self._writer = MessageWriter(names_topic=names_topic)
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
        consumer, taken, socket = self._consumer, self._taken, self._socket
        written = 0
        while not self._stopped and await consumer.ready():
            taken.extend(consumer.take(PORTION, PORTION_BYTES))
            while taken:
                if socket.writable is not None and not socket.writable.is_set():
                    await socket.writable.wait()  # before there are frames that would wait
                    continue  # a seek may have given back what was taken
                written += await self._write_group()
                if socket.gone:
                    return  # what was not written goes back
                if written >= SENDS_BEFORE_OTHERS:
                    written = 0
                    await asyncio.sleep(0)
            self._entry, self._messages = None, []

    def stop(self) -> None:
        """End `run` now."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()

    def give_back(self) -> None:
        """Return what was taken but never written: it does not count as delivered."""
        if self._taken:
            if self._left:
                self._taken[0] = msgspec.structs.replace(self._taken[0], mask=self._left)
            self._consumer.give_back(self._taken)
            self._taken.clear()
            self._left = 0

    async def _write_group(self) -> int:
        """Write the next messages that were taken; returns how many. They are given back unless all of them are written."""
        taken = self._taken
        first, group = taken[0], Group()
        for delivery in taken:
            self._add(group, delivery, self._left if delivery is first and self._left else delivery.mask)
            if group.left or group.full:
                break
        if group.frames:
            await self._socket.send_all(group.frames)
            if self._socket.gone:
                return 0
        if taken and taken[0] is first:  # else a seek gave it back meanwhile
            self._written(group)
        if group.passed:
            # No consumer could ever acknowledge them: they would stop the subscription for good.
            await self._consumer.acknowledge_all(group.passed)
        if group.paused and self._socket.allowance is not None:
            await self._socket.allowance.spend(0, 0)
        return len(group.frames)

    def _written(self, group: "Group") -> None:
        messages = size = 0
        for _ in range(group.done):
            delivery = self._taken.popleft()
            messages += delivery.count
            size += len(delivery.entry.data)
        self._left = group.left
        if messages:
            self._meter.deliveries.add(messages, size)

    def _add(self, group: "Group", delivery: Delivery, mask: int) -> None:
        """Add frames of the messages in `mask` to a group, until that is full."""
        entry, topic = delivery.entry, delivery.topic
        if entry is not self._entry:
            self._entry, self._messages = entry, self._decode(delivery)
        messages, known, write = self._messages, self.known, self._writer.write
        name, redeliveries, allowance = topic.name, delivery.redeliveries, self._socket.allowance
        for index in bits_of(mask):
            if group.full:
                group.left = mask >> index << index
                return
            message = messages[index] if index < len(messages) else None
            if message is None or message.compacted_out:
                group.passed.append(topic.id_of(entry, index if entry.count > 1 else -1))
                continue
            message_id = topic.id_of(entry, message.index)
            text = str(message_id)
            if len(known) >= KNOWN_MAX:
                known.clear()
            known[text] = message_id
            frame = write(message, text, name, redeliveries)
            group.frames.append(frame)
            group.size += len(frame)
            if allowance is not None and allowance.take(0, len(frame)):
                group.paused = True
        group.done += 1

    def _decode(self, delivery: Delivery) -> list[Message]:
        try:
            return self._wire.decode(delivery.entry)
        except PenstockError as error:
            log.error("an entry cannot be read and is passed over", extra={"entry": str(error)})
            return []


class Group:
    """Frames that are written at once, with what becomes of the deliveries then."""

    __slots__ = ("done", "frames", "left", "passed", "paused", "size")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.size = 0
        self.done = 0  # deliveries of which nothing is left
        self.left = 0  # of the one after them: the messages in no frame; 0 for all
        self.passed: list[MessageId] = []  # messages that are not to be seen
        self.paused = False  # nothing may be sent after it for some time: the rate of its role is used up

    @property
    def full(self) -> bool:
        return (
            len(self.frames) >= GROUP_MAX
            or self.size >= GROUP_BYTES
            or self.paused
            or len(self.passed) >= GROUP_MAX
        )
