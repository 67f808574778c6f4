"""The receiving side of a consumer: messages that wait for its endpoint, and the permits of its topics.

Entries arrive because they were permitted. Entries that the endpoint no longer permits, or that do not fit its window,
wait here: the cluster cannot take them back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.broker.delivery import Budget, Delivery
from penstock.engines.shared.outbox import COUNT_BYTES, PERMITS_MAX, Outbox
from penstock.model.bits import lowest_bits
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock

from .subscription import Subscription
from .topic_consumer import TopicConsumer

HELD_FACTOR: Final = 2  # times `outbox_bytes_max` may wait before permits are taken back
ANSWER_MS: Final = 20  # within which a cluster sends what it has, once it is permitted
NEXT_MS: Final = 5  # within which more follows what came
FIRST_BYTES: Final = 16 * 1024  # of a message, before the first one
_FALL: Final = 0.1  # of the difference, with each run that is smaller


class Receiver(Outbox):
    """`broker.Receiver`."""

    def __init__(
        self, name: str, subscription: str, options: ConsumerOptions, budget: Budget | None, clock: Clock
    ) -> None:
        super().__init__(name, subscription, options, budget, clock.now_ms())
        self.active_changed: Callable[[Any, bool], None] | None = None
        self.parts: dict[Subscription, TopicConsumer] = {}
        self._clock = clock
        self._waiting: deque[Delivery] = deque()  # arrived, and not permitted by the endpoint
        self._waiting_bytes = self._waiting_messages = 0
        self._size = MessageSize()
        self._expected_until = 0
        self._waits_for_room = False

    # -- capacity

    def flow(self, permits: int) -> None:
        """Allow `permits` more messages; raises BAD_PARAMETER unless positive. Sums are capped."""
        self.permit(permits)
        self._pump()
        if not self.outbox:
            self._expected_until = self._clock.monotonic_ms() + ANSWER_MS
        self.grant()

    @property
    def expects(self) -> bool:
        """Whether messages that are there already may still be on their way from the cluster."""
        return not self._waiting and self.capacity() > 0 and self._clock.monotonic_ms() < self._expected_until

    def grant(self) -> None:
        """Permit the topics as many messages as there is room for."""
        if self.closed or not self.parts:
            return
        held = self.outbox_bytes + self._waiting_bytes
        room = min(
            self.capacity() - self._waiting_messages, self._size.fit(self.options.outbox_bytes_max - held)
        )
        if self.budget is not None and self.budget.over:
            room = min(room, 0 if held else 1)
            if not self._waits_for_room:
                self._waits_for_room = True
                self.budget.call_when_room(self._has_room)
        share = share_of(room, len(self.parts))
        for part in self.parts.values():
            more = to_grant(share, part.due)
            if more:
                part.link.flow(more)

    def _has_room(self) -> None:
        self._waits_for_room = False
        self.grant()

    def settled(self, count: int) -> None:
        """`count` messages of this consumer are settled."""
        if count:
            self.unacked -= count
            self._pump()
            self.grant()

    # -- deliveries

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Called by a topic: messages arrived."""
        if deliveries and not self.closed:
            size = sum([len(one.entry.data) for one in deliveries])
            count = sum([one.mask.bit_count() for one in deliveries])
            self._size.came(count, size)
            self._waiting += deliveries
            self._waiting_bytes += size
            self._waiting_messages += count
            self._pump()
            self._expected_until = self._clock.monotonic_ms() + NEXT_MS
            self._bound(deliveries[-1])
        self.grant()

    def _bound(self, last: Delivery) -> None:
        """Messages became much larger than those that the permits were given for: take these back."""
        most = self.options.outbox_bytes_max
        link = self.parts[last.subscription].link  # type: ignore[index]
        if (
            self.outbox_bytes + self._waiting_bytes > HELD_FACTOR * most
            and link.permits * self._size.bytes > most
        ):
            link.restart()

    def _pump(self) -> None:
        """Move waiting messages to the outbox, as far as the endpoint permits."""
        waiting, room = self._waiting, self.capacity()
        if not waiting or room <= 0:
            return
        moved = 0
        while waiting and moved < room:
            delivery = waiting[0]
            count = delivery.mask.bit_count()
            size = len(delivery.entry.data)
            if moved + count > room:
                count = room - moved
                first = lowest_bits(delivery.mask, count)
                waiting[0] = msgspec.structs.replace(delivery, mask=delivery.mask & ~first)
                delivery = msgspec.structs.replace(delivery, mask=first)
            else:
                waiting.popleft()
                self._waiting_bytes -= size
            moved += count
            self._hand(delivery, count, size)
        self._waiting_messages -= moved
        self.delivered += moved
        if self.options.flow:
            self.permits -= moved
        if not self.options.auto_ack:
            self.unacked += moved
        if self.outbox_bytes + self._taken_bytes - self._counted > COUNT_BYTES:
            self._count()
        self._ready.set()

    def _hand(self, delivery: Delivery, count: int, size: int) -> None:
        self.outbox.append(delivery)
        self.outbox_bytes += size
        source = delivery.subscription
        source.delivered(count, size)  # type: ignore[attr-defined]  # they are the engine's own
        if self.options.ack_timeout_ms:
            self.parts[source].given(delivery)  # type: ignore[index]

    def take(self, count_max: int = 1 << 30, bytes_max: int = 1 << 60) -> list[Delivery]:
        """What waits in the outbox, oldest first, up to `count_max` deliveries: one, and more within `bytes_max`.

        It counts in the budget until the next call, or until the consumer waits for more.
        """
        taken = self._pop(count_max, bytes_max)
        if self._counted or self.outbox_bytes + self._taken_bytes > COUNT_BYTES:
            self._count()
        if taken and self.options.auto_ack:
            self._handed_on(taken)
        elif taken:
            taken, _ = self._still_out(taken)
        if not self.outbox and not self.closed:
            self._ready.clear()
        self.grant()
        return taken

    def _out_of(self, delivery: Delivery) -> int:
        part = self.parts.get(delivery.subscription)  # type: ignore[call-overload]
        return delivery.mask if part is None else part.out.is_out(delivery.entry, delivery.mask)

    def _handed_on(self, taken: list[Delivery]) -> None:
        for source, part in list(self.parts.items()):
            part.handed_on([one for one in taken if one.subscription is source])

    def _count(self) -> None:
        """Update the bytes that count in the budget."""
        if self.budget is None:
            return
        size = self.outbox_bytes + self._waiting_bytes + self._taken_bytes
        if size < COUNT_BYTES:
            size = 0
        self.budget.send(size - self._counted)
        self._counted = size

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """It waits for the next permits: other consumers get it when this one leaves."""
        back: list[Delivery] = []
        for delivery in deliveries:
            part = self.parts.get(delivery.subscription)  # type: ignore[call-overload]
            mask = 0 if part is None else part.out.is_out(delivery.entry, delivery.mask)
            if mask:
                back.append(msgspec.structs.replace(delivery, mask=mask))
        count = sum([one.mask.bit_count() for one in back])
        self._waiting.extendleft(reversed(back))
        self._waiting_messages += count
        self._waiting_bytes += sum([len(one.entry.data) for one in back])
        if not self.options.auto_ack:
            self.unacked -= count
        self._pump()

    def void(self, source: Subscription) -> list[Delivery]:
        """Drop and return the untaken deliveries of a topic."""
        waiting = [one for one in self._waiting if one.subscription is source]
        if waiting:
            self._waiting = deque([one for one in self._waiting if one.subscription is not source])
            self._waiting_messages -= sum([one.mask.bit_count() for one in waiting])
            self._waiting_bytes = sum([len(one.entry.data) for one in self._waiting])
        dropped = [one for one in self.outbox if one.subscription is source]
        if dropped:
            self.outbox = deque([one for one in self.outbox if one.subscription is not source])
            self.outbox_bytes = sum([len(one.entry.data) for one in self.outbox])
            count = sum([one.mask.bit_count() for one in dropped])
            if self.options.flow:
                self.permits = min(PERMITS_MAX, self.permits + count)
            if not self.options.auto_ack:
                self.unacked -= count
        self._count()
        return [*dropped, *waiting]

    @property
    def idle(self) -> bool:
        """Whether nothing waits for the endpoint."""
        return not self._waiting and not self.outbox


class MessageSize:
    """The recent average of bytes per message."""

    def __init__(self) -> None:
        self.bytes = float(FIRST_BYTES)
        self._known = False

    def came(self, messages: int, size: int) -> None:
        """A run of messages came."""
        each = size / max(1, messages)
        if not self._known or each > self.bytes:
            self._known, self.bytes = True, max(1.0, each)
        else:
            self.bytes = max(1.0, self.bytes + (each - self.bytes) * _FALL)

    def fit(self, size: int) -> int:
        """How many messages fit into `size` bytes, at least one if there is any room."""
        return max(1, int(size / self.bytes)) if size > 0 else 0


def share_of(room: int, topics: int) -> int:
    """The number of messages that each of some topics may send, so that none waits for another: at least one while there is room."""
    return max(1, room // topics) if room > 0 else 0


def to_grant(share: int, permitted: int) -> int:
    """The number of further permits if `permitted` are open: none while it is less than half of the share."""
    missing = share - permitted
    return missing if missing > 0 and 2 * missing >= share else 0
