"""From a consumer's outbox to frames on its socket.

Messages are taken in small portions and written in groups; a peer that does not read stops the taking, and the
consumer's window, permits and outbox bound the messages taken from the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.message_id import IdWriter, MessageId
from penstock.protocols.holding import Holding
from penstock.protocols.proxied import Meter
from penstock.protocols.rates import Allowance
from penstock.wire import entry as wire

from .messages import MessageWriter
from .socket import Socket

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
