"""What is out of a subscription, and the two ways it ends: acknowledged, or delivered again."""

from collections.abc import Awaitable, Callable

from penstock.engines.embedded.log.offsets import OffsetSet
from penstock.model.entry import Entry
from penstock.model.policy import DeadLetter
from penstock.runtime.tasks import Tasks

from .key_order import KeyOrder
from .pending import Pending, PendingTable
from .receiver import Receiver, Source
from .redelivery import Redelivery
from .replay import Slice
from .source import SubscribedLog


class Outstanding:
    """The books of a subscription: `pending` is with consumers, `back` comes again, `keys` waits for its turn.

    `moved` is told when the cursor changed, `wake` when there is something to deliver.
    """

    def __init__(
        self,
        topic: SubscribedLog,
        cursor: OffsetSet,
        tasks: Tasks,
        *,
        wake: Callable[[], None],
        moved: Callable[[], None],
        bury: Callable[[Entry, int, DeadLetter, int], Awaitable[None]],
    ) -> None:
        self.pending = PendingTable()
        self.keys: KeyOrder | None = None  # of a Key_Shared subscription
        self.back = Redelivery(
            topic,
            tasks,
            wake=wake,
            bury=bury,
            buried=self.acknowledged,
            left=lambda dead: dead.mask & ~cursor.mask(dead.offset, dead.count),
        )
        self._cursor = cursor
        self._wake = wake
        self._moved = moved

    # -- out

    def give(self, part: Pending) -> None:
        """A consumer is about to get these messages and has to answer them."""
        self.pending.add(part)
        timeout = part.consumer.options.ack_timeout_ms
        if timeout:
            self.back.watch(part, timeout, self._timed_out)

    def settle(self, part: Pending, mask: int) -> None:
        """These messages are no longer out: their consumer has room again, and what waited for their keys may go."""
        part.mask &= ~mask
        if not part.mask:
            self.pending.drop(part)
        if self.keys is not None:
            for key_hash, count in part.hash_counts(mask).items():
                freed = self.keys.settled(key_hash, count)
                if freed:
                    self.back.again(freed)
                    self._wake()
        part.consumer.settled(mask.bit_count())

    # -- acknowledged

    def acknowledged(self, offset: int, mask: int) -> None:
        """Count messages as done: bit i of `mask` is the one at `offset + i`."""
        new = self._cursor.add(offset, mask)
        if new:
            self.back.acknowledged(offset, new)
            self._moved()

    def acknowledged_below(self, end: int) -> None:
        """Count everything below the offset `end` as done."""
        for part in self.pending.all():
            if part.offset < end:
                self.settle(part, part.mask & ((1 << max(0, end - part.offset)) - 1))
        self.back.acknowledged_below(end)
        self._cursor.raise_mark(end)
        self._moved()

    # -- coming back

    def take_back(self, part: Pending, mask: int, *, counts: bool, delay_ms: int = 0) -> None:
        """Take messages from a consumer and see that they are delivered again, or buried. `counts`: as a try."""
        mask &= part.mask
        if not mask:
            return
        self.settle(part, mask)
        again = Slice(part.entry_id, part.offset, part.count, mask)
        if counts:
            self.back.count(again, part.consumer.options.dead_letter)
        if not again.mask:
            return
        if delay_ms > 0:
            self.back.later(again, delay_ms)
        else:
            self.back.replay.add(again)

    def take_all_back(self, consumer: Receiver, subscription: Source) -> None:
        """Everything a consumer has is to be delivered again; what it never took does not count as tried."""
        untouched: dict[int, int] = {}
        for delivery in consumer.outbox:
            if delivery.subscription is subscription:
                entry_id = delivery.entry.entry_id
                untouched[entry_id] = untouched.get(entry_id, 0) | delivery.mask
        consumer.forget(subscription)
        for part in self.pending.with_consumer(consumer):
            self.take_back(part, untouched.get(part.entry_id, 0), counts=False)
            self.take_back(part, part.mask, counts=True)

    def _timed_out(self, part: Pending) -> None:
        if part.mask:
            self.take_back(part, part.mask, counts=True)
            self._wake()

    # -- the whole

    def release_aside(self) -> None:
        """The consumers changed: whatever waits for its key is dealt out anew."""
        if self.keys is not None:
            self.back.again(self.keys.release_all())

    def forget(self) -> None:
        """The cursor moves: nothing of before is out, waits or comes back."""
        if self.keys is not None:
            self.keys.clear()
        for part in self.pending.all():
            count = part.mask.bit_count()
            part.mask = 0  # its timer finds nothing
            part.consumer.settled(count)
        self.pending.clear()
        self.back.forget()
