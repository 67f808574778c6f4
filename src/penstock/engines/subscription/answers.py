"""What consumers answer: acknowledged, negatively acknowledged, to be delivered again."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, cast

from penstock.broker.delivery import Delivery
from penstock.broker.delivery import Receiver as AnyReceiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .offsets import CHUNK, OffsetSet
from .outstanding import Outstanding
from .pending import Pending
from .receiver import Receiver, Source

LOOK_AT: Final = 1000  # entries, before those that are acknowledged are forgotten


class Answers:
    """`broker.Answers`: the answers to one subscription's messages. Those that are out are answered at once; the `_late` ones look up
    in the log what is no longer outstanding."""

    def __init__(self, subscription: Source, out: Outstanding) -> None:
        self._subscription = subscription
        self._topic = subscription.topic
        self._out = out
        self._pending = out.pending

    @property
    def save(self) -> int:
        """As `broker.Answers.save`."""
        return self._subscription.saves + 1

    @property
    def saved(self) -> int:
        """As `broker.Answers.saved`."""
        return self._subscription.saves_done

    # -- acknowledged

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message (or a whole entry, index -1) that is out; False when the entry is not out."""
        held = self._pending.of(entry_id)
        if not held:
            return False
        self._acknowledge(held, held[0].offset, _mask_of(entry_id, index, held[0].count))
        return True

    def acknowledge_all(self, message_ids: Iterable[MessageId]) -> tuple[int, list[MessageId]]:
        """Acknowledge messages that are out, in one change of the cursor for those that follow one another.

        Returns how many those were, and the ids of entries that are not out. Indexes beyond an entry are passed over.
        """
        late: list[MessageId] = []
        settled = Settled(self._out)
        held: list[Pending] = []
        entry_id = -1
        acknowledged = count = mask = 0
        for message_id in message_ids:
            if message_id.entry != entry_id:
                if mask:
                    settled.add(held, mask)
                    mask = 0
                entry_id = message_id.entry
                held = self._pending.of(entry_id)
                count = held[0].count if held else 0
            index = message_id.batch_index
            if not held:
                late.append(message_id)
            elif index < count:
                mask |= (1 << count) - 1 if index < 0 else 1 << index
                acknowledged += 1
        if mask:
            settled.add(held, mask)
        settled.close()
        return acknowledged, late

    def acknowledge_masks(self, masks: Mapping[int, int]) -> list[int]:
        """The same for messages as bits by entry, -1 for a whole one; returns the entries that were passed over, as they are
        not out or have not all of these messages."""
        passed: list[int] = []
        settled = Settled(self._out)
        for entry_id, mask in masks.items():
            held = self._pending.of(entry_id)
            whole = (1 << held[0].count) - 1 if held else 0
            if mask < 0:
                mask = whole
            if held and mask <= whole:
                settled.add(held, mask)
            else:
                passed.append(entry_id)
        settled.close()
        return passed

    async def acknowledge_late(self, message_id: MessageId) -> None:
        self._subscription.check_held()
        if 0 <= message_id.entry < self._topic.first_entry:
            return
        entry, index = await self._topic.entry(message_id.entry), message_id.batch_index
        mask = _mask_of(message_id.entry, index, entry.count)
        self._acknowledge(self._pending.of(message_id.entry), entry.offset, mask)

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: AnyReceiver) -> bool:
        """Acknowledge what `consumer` has of an entry but the messages in `unacked`; if it has nothing of
        it, all that is not out with others. An entry of one message is acknowledged with any consumer, as in Pulsar: it may have
        gone to the next active one. False when the entry is not out."""
        held = self._pending.of(entry_id)
        if not held:
            return False
        own = held if held[0].count == 1 else [part for part in held if part.consumer is consumer]
        mask = 0 if own else ((1 << held[0].count) - 1) & ~self._pending.mask(entry_id)
        for part in own:
            mask |= part.mask
        self._acknowledge(own, held[0].offset, mask & ~unacked)
        return True

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: AnyReceiver) -> None:
        self._subscription.check_held()
        if 0 <= entry_id < self._topic.first_entry:
            return
        entry = await self._topic.entry(entry_id)
        if not self.acknowledge_but(entry_id, unacked, consumer):
            self._out.acknowledged(entry.offset, ((1 << entry.count) - 1) & ~unacked)

    def _acknowledge(self, parts: Sequence[Pending], offset: int, mask: int) -> None:
        for part in tuple(parts):
            if hit := part.mask & mask:
                self._out.settle(part, hit)
        self._out.acknowledged(offset, mask)

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        self._subscription.check_held()
        if message_id.entry < self._topic.first_entry:
            return
        held = self._pending.of(message_id.entry)
        found = held[0] if held else await self._topic.entry(message_id.entry)
        mask = _mask_of(message_id.entry, message_id.batch_index, found.count)
        self._out.acknowledged_below(found.offset + mask.bit_length())

    # -- given back

    def negative(self, entry_id: int, index: int, delay_ms: int, by: AnyReceiver | None = None) -> bool:
        """Have a message that is out, with `by` or (None) with any consumer, delivered again after a delay.

        False when it is not out.
        """
        found = False
        for part in list(self._pending.of(entry_id)):
            if by is not None and part.consumer is not by:
                continue
            mask = part.mask if index < 0 else part.mask & (1 << index)
            if mask:
                self._out.take_back(part, mask, counts=True, delay_ms=delay_ms)
                found = True
        if found:
            self._subscription.wake()
        return found

    def give_back(self, consumer: Receiver, delivery: Delivery) -> None:
        """What a consumer took but could not hand on goes out again without counting."""
        for part in list(self._pending.of(delivery.entry.entry_id)):
            if part.consumer is consumer:
                self._out.take_back(part, delivery.mask, counts=False)
        self._subscription.wake()

    def redeliver_all(self, consumer: AnyReceiver) -> None:
        """Deliver again everything that a consumer has; what it never took does not count as tried."""
        self._out.take_all_back(cast(Receiver, consumer), self._subscription)
        self._subscription.wake()

    # -- with whom

    def has_out(self, entry_id: int, index: int, consumer: Receiver | None) -> bool:
        """Whether a message is out, with `consumer` or (None) with any."""
        bit = -1 if index < 0 else 1 << index
        for part in self._pending.of(entry_id):  # no generator: each reply asks
            if part.mask & bit and (consumer is None or part.consumer is consumer):
                return True
        return False

    def check_out(self, message_id: MessageId, consumer: Receiver | None) -> None:
        """Raise MESSAGE_NOT_FOUND unless a message is out, with `consumer` or (None) with any."""
        if not self.has_out(message_id.entry, message_id.batch_index, consumer):
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"message {message_id} is not out with this consumer: it cannot reply",
            )

    def holder(self, entry_id: int, index: int, owner: str | None) -> Receiver | None:
        """The consumer of `owner` that a message is out with, else any of its consumers, which then has it not;
        None, which is any, if consumers have no owners."""
        if owner is None:
            return None
        own = [consumer for consumer in self._out.selection.consumers if consumer.owner == owner]
        if not own:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"{owner!r} has no consumer of {self._subscription.name}"
            )
        return next((one for one in own if self.has_out(entry_id, index, one)), own[0])


class Settled:
    """Messages that are acknowledged together: those that follow one another in the log are one change of the cursor, and a
    consumer is notified once of the room it has."""

    __slots__ = ("_consumer", "_count", "_end", "_out", "_start")

    def __init__(self, out: Outstanding) -> None:
        self._out = out
        self._start = self._end = 0  # offsets that are all acknowledged
        self._consumer: Receiver | None = None
        self._count = 0  # messages that it has no longer

    def add(self, held: list[Pending], mask: int) -> None:
        """The messages in `mask` of an entry, of which `held` is out."""
        first = held[0]
        offset, count = first.offset, first.count
        for part in held if len(held) == 1 else tuple(held):
            if hit := part.mask & mask:
                if part.consumer is not self._consumer:
                    self._notify()
                    self._consumer = part.consumer
                self._out.release(part, hit)
                self._count += hit.bit_count()
        if mask & (mask + 1):  # not all from the first on
            self._out.acknowledged(offset, mask)
            return
        if offset != self._end or self._end - self._start >= CHUNK:
            self._mark()
            self._start = offset
        self._end = offset + (1 if count == 1 else mask.bit_length())

    def close(self) -> None:
        """Nothing follows."""
        self._mark()
        self._notify()

    def _mark(self) -> None:
        if self._end > self._start:
            self._out.acknowledged(self._start, (1 << (self._end - self._start)) - 1)
        self._start = self._end

    def _notify(self) -> None:
        if self._consumer is not None and self._count:
            self._consumer.settled(self._count)
        self._count = 0


def _mask_of(entry_id: int, index: int, count: int) -> int:
    """A message of an entry of `count`, all of them for -1, as bits; raises MESSAGE_NOT_FOUND."""
    if index >= count:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"entry {entry_id} has no message {index}")
    return (1 << count) - 1 if index < 0 else 1 << index


class PartialBatches:
    """`broker.PartialBatches`: which parts of a batch were delivered as separate batches, with indexes from 0, since the server started.

    An acknowledgement of part of a batch says by index what it leaves. A client may hold messages of the whole batch
    and of several such parts at a time, after a reconnect for example, and does not say which of them it counts by.
    """

    def __init__(self, cursor: OffsetSet, clients: Collection[str], learn: Callable[[str], None]) -> None:
        self.clients = clients
        self.learn = learn
        self._cursor = cursor
        # By entry: its end, and the masks of its parts.
        self._parts: dict[int, tuple[int, list[int]]] = {}
        self._look_at = LOOK_AT

    def add(self, entry_id: int, end: int, mask: int) -> None:
        parts = self._parts.setdefault(entry_id, (end, []))[1]
        if mask not in parts:
            parts.append(mask)
        if len(self._parts) > self._look_at:
            mark = self._cursor.mark
            self._parts = {entry: one for entry, one in self._parts.items() if one[0] > mark}
            self._look_at = max(LOOK_AT, 2 * len(self._parts))

    def left(self, entry_id: int, bits: int) -> int:
        """What an acknowledgement leaves of the whole batch: all that it leaves by any of the ways to count."""
        found = bits
        for mask in self._parts.get(entry_id, (0, ()))[1]:
            found |= spread(bits, mask)
        return found


def spread(bits: int, mask: int) -> int:
    """Bits over the messages of a part as bits over those of the whole batch."""
    found = 0
    while bits and mask:
        low = mask & -mask
        if bits & 1:
            found |= low
        mask ^= low
        bits >>= 1
    return found
