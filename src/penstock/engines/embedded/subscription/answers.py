"""What consumers answer: acknowledged, negatively acknowledged, to be delivered again."""

from typing import cast

from penstock.broker.consumer import Delivery
from penstock.broker.consumer import Receiver as AnyReceiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .delivering import Delivering
from .outstanding import Outstanding
from .receiver import Receiver, Source


class Answers:
    """The answers to one subscription's messages. Those that are out are answered at once; the `_late` ones look up
    in the log what is out no more."""

    def __init__(self, subscription: Source, out: Outstanding, delivering: Delivering) -> None:
        self._subscription = subscription
        self._topic = subscription.topic
        self._out = out
        self._delivering = delivering
        self._pending = out.pending

    # -- acknowledged

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message (or a whole entry, index -1) that is out; False when the entry is not out."""
        held = self._pending.of(entry_id)
        if not held:
            return False
        offset, count = held[0].offset, held[0].count
        if index >= count:
            raise _no_message(entry_id, index)
        mask = (1 << count) - 1 if index < 0 else 1 << index
        for part in list(held):
            hit = part.mask & mask
            if hit:
                self._out.settle(part, hit)
        self._out.acknowledged(offset, mask)
        return True

    async def acknowledge_late(self, message_id: MessageId) -> None:
        """Acknowledge a message that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""
        if 0 <= message_id.entry < self._topic.first_entry:
            return
        entry, index = await self._topic.entry(message_id.entry), message_id.batch_index
        if index >= entry.count:
            raise _no_message(message_id.entry, index)
        if not self.acknowledge(message_id.entry, index):
            self._out.acknowledged(entry.offset, (1 << entry.count) - 1 if index < 0 else 1 << index)

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: AnyReceiver) -> bool:
        """Acknowledge what `consumer` has of an entry but the messages in `unacked`; where it has nothing of
        it, all that is not out with others. False when the entry is not out."""
        held = self._pending.of(entry_id)
        if not held:
            return False
        offset, count = held[0].offset, held[0].count
        own = [part for part in held if part.consumer is consumer]
        mask = 0 if own else ((1 << count) - 1) & ~self._pending.mask(entry_id)
        for part in own:
            mask |= part.mask
        mask &= ~unacked
        for part in own:
            if hit := part.mask & mask:
                self._out.settle(part, hit)
        self._out.acknowledged(offset, mask)
        return True

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: AnyReceiver) -> None:
        """The same of an entry that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""
        if 0 <= entry_id < self._topic.first_entry:
            return
        entry = await self._topic.entry(entry_id)
        if not self.acknowledge_but(entry_id, unacked, consumer):
            self._out.acknowledged(entry.offset, ((1 << entry.count) - 1) & ~unacked)

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with a message; raises MESSAGE_NOT_FOUND past the end."""
        if message_id.entry < self._topic.first_entry:
            return
        held = self._pending.of(message_id.entry)
        if held:
            offset, count = held[0].offset, held[0].count
        else:
            entry = await self._topic.entry(message_id.entry)
            offset, count = entry.offset, entry.count
        index = message_id.batch_index
        if index >= count:
            raise _no_message(message_id.entry, index)
        self._out.acknowledged_below(offset + (index + 1 if index >= 0 else count))

    # -- given back

    def negative(self, entry_id: int, index: int, delay_ms: int, by: AnyReceiver | None = None) -> bool:
        """Have a message that is out, with `by` or (None) with anybody, delivered again after a delay.

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
        """Whether a message is out, with `consumer` or (None) with anybody."""
        bit = -1 if index < 0 else 1 << index
        return any(
            part.mask & bit and (consumer is None or part.consumer is consumer)
            for part in self._pending.of(entry_id)
        )

    def holder(self, entry_id: int, index: int, owner: str | None) -> Receiver | None:
        """The consumer of `owner` that a message is out with, else any of its consumers, which then has it not;
        None, which is anybody, where nobody owns consumers."""
        if owner is None:
            return None
        own = [consumer for consumer in self._delivering.selection.consumers if consumer.owner == owner]
        if not own:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"{owner!r} has no consumer of {self._subscription.name}"
            )
        return next((one for one in own if self.has_out(entry_id, index, one)), own[0])


def _no_message(entry_id: int, index: int) -> PenstockError:
    return PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"entry {entry_id} has no message {index}")
