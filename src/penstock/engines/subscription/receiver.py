"""The side of a consumer that a subscription delivers to: what waits for it, and how much more it takes.

One consumer may be attached to many subscriptions of one name (a partitioned topic's, or several topics'); its
window and permits are shared among them, so that the total of unacknowledged messages is bounded.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from penstock.broker.delivery import Budget, Delivery
from penstock.broker.log import Log
from penstock.engines.shared.outbox import COUNT_BYTES, PERMITS_MAX, Outbox
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.policy import ConsumerOptions
from penstock.runtime.statistics import Rate

from .offsets import OffsetSet


class SubscribedLog(Log, Protocol):
    """The log that a subscription reads. What appends to it wakes the subscription."""

    @property
    def first_entry(self) -> int: ...
    @property
    def next_entry(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def terminated(self) -> bool: ...
    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is in memory."""

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        """Entries from `entry_id` on that are in memory, up to `entries_max`."""

    def gap_end(self, entry_id: int) -> int:
        """The id after a gap that begins at `entry_id`, as far as reads have seen it; `entry_id` if there is none.

        A log whose ids may skip has entries of one message each, whose ids are their offsets. What a read returns has no
        gap in it, and its first entry may lie beyond the id that was asked for.
        """


class Source(Protocol):
    """A subscription as its parts and its consumers see it."""

    topic: SubscribedLog
    name: str
    cursor: OffsetSet
    rate_out: Rate
    deleted: bool
    saves: int  # how often changes of the cursor were taken to be saved
    saves_done: int  # the changes of so many of the first saves are durable
    compacted: bool  # whether its consumers see only the last values of compacted messages
    unacked_max: int  # messages that one consumer may have out; 0: any number

    @property
    def halted(self) -> bool:
        """Whether nothing is delivered now: another process has the log, or may have it."""

    def check_held(self) -> None:
        """Raise if acknowledgements would not count, as another process has the log."""

    @property
    def backlog(self) -> int:
        """Messages not acknowledged."""

    def wake(self) -> None:
        """Something changed: deliver soon."""

    def out_with(self, consumer: "Receiver", entry_id: int) -> int:
        """Which messages of an entry a consumer has not answered, as bits."""

    def remove(self, consumer: "Receiver") -> None:
        """Let a consumer go; what it had goes to the others."""


class Receiver(Outbox):
    """`broker.Receiver`: one consumer, as far as it is delivered to. Endpoints take deliveries from its outbox."""

    def __init__(
        self,
        name: str,
        subscription: str,
        options: ConsumerOptions,
        budget: Budget | None = None,
        connected_ms: int = 0,
    ) -> None:
        super().__init__(name, subscription, options, budget, connected_ms)
        self.follows = False  # topics that come later join: it lives without any
        self.active_changed: Callable[[Source, bool], None] | None = None
        self._attached: dict[int, Source] = {}
        self._turn = 0
        self._starved = False
        self._repeats = False  # redeliveries are in the outbox
        self._count_at = PERMITS_MAX if budget is None else COUNT_BYTES
        self._outbox_max = options.outbox_bytes_max  # less while the budget is exceeded

    # -- capacity

    def capacity(self) -> int:
        room = super().capacity()
        if self.outbox_bytes >= self._outbox_max:
            room = 0
        if room <= 0:
            self._starved = True
        return room

    def room(self) -> tuple[int, int]:
        """The number of messages it takes, and of bytes of entries until it must be asked again; one more may exceed them."""
        return self.capacity(), min(self._outbox_max, self._count_at) - self.outbox_bytes

    def bound_unacked(self) -> None:
        """Take the lowest bound on unacknowledged messages that its topics' policies have; 0 bounds nothing."""
        bounds = [one.unacked_max for one in self._attached.values()]
        raised = min((bound for bound in bounds if bound > 0), default=PERMITS_MAX)
        if raised > self.unacked_max:
            self.unacked_max = raised
            self.wake_sources()
        self.unacked_max = raised

    def flow(self, permits: int) -> None:
        """Allow `permits` more messages; raises BAD_PARAMETER unless positive. Sums are capped."""
        self.permit(permits)
        self.wake_sources()

    def settled(self, count: int) -> None:
        """`count` messages of this consumer are settled."""
        self.unacked -= count
        if self._starved:
            self._starved = False
            self.wake_sources()

    def wake_sources(self) -> None:
        """Let the subscriptions know that there is room, a different one first each time."""
        self._starved = False
        sources = self.sources
        if len(sources) > 1:
            self._turn = (self._turn + 1) % len(sources)
            sources = sources[self._turn :] + sources[: self._turn]
        for source in sources:
            source.wake()

    # -- deliveries

    def deliver(self, deliveries: Sequence[Delivery], count: int, size: int) -> None:
        """Called by a subscription: hand over parts of entries, `count` messages in entries of `size` bytes."""
        self.delivered += count
        if self.options.flow:
            self.permits -= count
        if not self.options.auto_ack:
            self.unacked += count
        self.outbox += deliveries
        self.outbox_bytes += size
        if self.outbox_bytes > self._count_at:
            self._count()
        self._ready.set()

    def repeats(self) -> None:
        """Called by a subscription: the next delivery was with another consumer before, which may still acknowledge it."""
        self._repeats = not self.options.auto_ack

    def take(self, count_max: int = 1 << 30, bytes_max: int = 1 << 60) -> list[Delivery]:
        """What waits in the outbox, oldest first, up to `count_max` deliveries: one, and more within `bytes_max`.

        It counts in the budget until the next call, or until the consumer waits for more.
        """
        taken = self._pop(count_max, bytes_max)
        if self._counted or self._outbox_max == 1 or self.outbox_bytes + self._taken_bytes > self._count_at:
            self._count()
        if self._repeats:
            taken, dropped = self._still_out(taken)
            self._starved |= dropped > 0 and self.options.flow
            self._repeats = bool(self.outbox)
        if not self.outbox and not self.closed:
            self._ready.clear()
        if self._starved:
            self.wake_sources()
        return taken

    def _out_of(self, delivery: Delivery) -> int:
        if not delivery.redeliveries:
            return delivery.mask
        source = cast(Source, delivery.subscription)
        return delivery.mask & source.out_with(self, delivery.entry.entry_id)

    def _count(self) -> None:
        """Count in the budget what it has now; while that is exceeded nothing is added to what waits."""
        budget = self.budget
        if budget is None:
            return
        size = self.outbox_bytes + self._taken_bytes
        if size < COUNT_BYTES:
            size = 0
        budget.send(size - self._counted)
        self._counted = size
        self._count_at = self.outbox_bytes + COUNT_BYTES
        self._outbox_max = 1 if budget.over else self.options.outbox_bytes_max

    def forget(self, subscription: Source, below: int | None = None) -> int:
        """Drop what waits in the outbox from one subscription, or only its entries that begin below an offset;
        returns how many messages that were."""
        kept = [
            d
            for d in self.outbox
            if d.subscription is not subscription or (below is not None and d.entry.offset >= below)
        ]
        dropped = sum(d.count for d in self.outbox) - sum(d.count for d in kept)
        if dropped:
            self.outbox = deque(kept)
            self.outbox_bytes = sum(len(d.entry.data) for d in kept)
            self._count()
            if self.options.flow:
                self.permits = min(PERMITS_MAX, self.permits + dropped)
        return dropped

    # -- attachment

    @property
    def sources(self) -> list[Source]:
        """The subscriptions it takes part in."""
        return list(self._attached.values())

    def attach(self, subscription: Source) -> None:
        self._attached[subscription.topic.ledger] = subscription

    def detach(self, subscription: Source) -> None:
        self._attached.pop(subscription.topic.ledger, None)

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave every subscription; unacknowledged messages go to the others."""
        if self.closed:
            return
        self.closed = True
        self.close_reason = reason
        for subscription in self.sources:
            subscription.remove(self)
        self.outbox.clear()
        self.outbox_bytes = self._taken_bytes = 0
        self._count()
        self.budget = None
        self.end_reached = self.active_changed = self.moved = (
            None  # they know this object: no circle is left to the collector
        )
        self._ready.set()
