"""A subscription: its consumers and its cursor.

An append only wakes it; `Delivering` deals out, `Outstanding` keeps the books, `Answers` takes what consumers answer.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.broker.subscription import DeadLetterStats, SubscriptionFigures
from penstock.engines.shared.dead_letters import DeadLetterQueue
from penstock.engines.shared.unsubscribing import connected_error
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.policy import UNACKED_PER_CONSUMER_MAX, DeadLetter, SubscriptionType
from penstock.runtime.clock import Timer
from penstock.runtime.failures import Failures
from penstock.runtime.statistics import Rate
from penstock.runtime.tasks import Tasks
from penstock.runtime.throttle import Throttle

from .answers import Answers, PartialBatches
from .compaction import Compaction
from .cursors import StoredCursor
from .delivering import Delivering
from .key_shared import KeyShared
from .offsets import OffsetSet
from .outstanding import Outstanding
from .reading import ReadFailures
from .receiver import Receiver, SubscribedLog
from .selection import Exclusive, Failover, Keys, Selection, Shared
from .store import CursorWriter

HAND_OVER_MS: Final = 1000  # as Pulsar's activeConsumerFailoverDelayTimeMillis
RULES: Final[dict[SubscriptionType, type[Selection]]] = {
    SubscriptionType.EXCLUSIVE: Exclusive,
    SubscriptionType.FAILOVER: Failover,
    SubscriptionType.SHARED: Shared,
    SubscriptionType.KEY_SHARED: KeyShared,
}


class Host(Protocol):
    """Whose subscriptions they are: the topic, and the broker behind it."""

    failures: Failures

    def check(self, subscription: "Subscription", wanted: SubscriptionType) -> None:
        """Raise BAD_PARAMETER, CONSUMER_BUSY unless one more consumer of this type may take part."""

    def moved(self, subscription: "Subscription") -> None:
        """The cursor moved: it needs to be saved, and messages that it held may be deleted now."""

    def rewound(self) -> None:
        """A cursor went back: the backlog may be larger than it was."""

    def removed(self, subscription: "Subscription") -> None:
        """The subscription was deleted."""

    async def bury(
        self, subscription: "Subscription", entry: Entry, index: int, letter: DeadLetter, redeliveries: int
    ) -> None:
        """Publish message `index` of `entry` to the dead-letter topic; completes when it is durable there."""

    async def reply(self, subscription: "Subscription", consumer: Receiver | None, reply: Reply) -> Outcome:
        """Deliver a reply to the waiting requester (PIP-371); raises MESSAGE_NOT_FOUND, TOO_LARGE."""

    def reply_all(
        self, subscription: "Subscription", consumer: Receiver | None, replies: Sequence[Reply]
    ) -> Sequence[Reply]:
        """The same for many whose ids are known; returns the others, with which nothing has happened."""


class Subscription(StoredCursor):
    """`broker.Subscription`: one subscription of one log. `compaction` is the result of the last compaction.

    `answers` is for what consumers say of the messages they were given.

    If another consumer becomes the active one (Failover), nothing is delivered until the one before has answered what it has, for
    HAND_OVER_MS at most: its acknowledgements may be on their way, and what it acknowledges is not to be delivered again.
    """

    def __init__(
        self,
        topic: SubscribedLog,
        name: str,
        *,
        cursor: OffsetSet,
        durable: bool,
        keys: Keys,
        tasks: Tasks,
        cursors: CursorWriter,
        compaction: Compaction,
        host: Host,
        properties: dict[str, str] | None = None,
    ) -> None:
        super().__init__(
            topic.ledger,
            name,
            cursor,
            cursors if durable else None,
            properties or {},
            tasks=tasks,
            moved=self._cursor_moved,
        )
        self.topic = topic
        self.type: SubscriptionType | None = None  # of its consumers, now or before; None: it never had one
        self.rate_out = Rate(topic.clock)
        self.compaction = compaction
        self.host = host
        self.unacked_max = UNACKED_PER_CONSUMER_MAX  # messages that one consumer may have out; 0: any number
        self.throttle: Throttle | None = None  # the rate that policies bound for it alone
        self._previous: Receiver | None = None  # the active consumer before, which still has messages
        self._until: Timer | None = None
        self.compacted = False  # whether its consumers see only the last values of compacted messages
        self.partial_batches = PartialBatches(cursor, self.clients_by_index, self.learn_client)
        self.dead_letters = DeadLetterStats()
        subject = f"{topic.name} {name}"
        self._keys = keys
        self._out = Outstanding(
            topic,
            cursor,
            tasks,
            Selection(keys, topic.partition),
            DeadLetterQueue(self.dead_letters, subject, host.failures, topic.clock, tasks),
            ReadFailures(host.failures, f"{subject} (delayed)"),
            wake=self.wake,
            moved=self._moved,
            bury=partial(host.bury, self),
        )
        self._delivering = Delivering(
            self, self._out, compaction, tasks, ReadFailures(host.failures, subject)
        )
        self.answers = self.entry_answers = Answers(self, self._out)
        self.limit_rate = self._delivering.limit_rate
        self.last_visible = self._delivering.last_visible
        self.upcoming = self._delivering.upcoming
        self.acknowledged, self.acknowledged_ranges = cursor.mask, cursor.ranges

    def check_held(self) -> None:
        """No other process has the log."""

    @property
    def halted(self) -> bool:
        """Whether nothing is delivered now: the active consumer before may still answer what it has."""
        return self._previous is not None

    def wake(self) -> None:
        """Something changed: deliver soon. Wakes between two runs are one."""
        self._delivering.wake()

    # -- consumers

    @property
    def consumers(self) -> list[Receiver]:
        return self._out.selection.consumers

    @property
    def active(self) -> Receiver | None:
        """The active consumer of an exclusive or failover subscription."""
        return self._out.selection.active

    def add(self, consumer: Receiver, *, unique_name: bool = False) -> None:
        """Let a consumer take part; raises SUBSCRIPTION_BUSY, CONSUMER_BUSY, KEY_RANGE_TAKEN."""
        wanted = consumer.options.type
        if self.consumers and self.type is not wanted:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY,
                f"subscription {self.name} is of type {self.type.value if self.type else ''}, "
                f"not {wanted.value}",
            )
        if unique_name and any(c.name == consumer.name for c in self.consumers):
            raise PenstockError(
                ErrorKind.CONSUMER_BUSY,
                f"a consumer named {consumer.name} is connected to subscription {self.name} already",
            )
        self.host.check(self, wanted)
        before = self.active
        if self.consumers:
            self._out.selection.add(consumer)
        else:
            selection = RULES[wanted](self._keys, self.topic.partition)
            selection.add(consumer)
            self.type, self._out.selection, self.compacted = wanted, selection, consumer.options.compacted
        consumer.attach(self)
        consumer.bound_unacked()
        self._consumers_changed(before, consumer)

    def out_with(self, consumer: Receiver, entry_id: int) -> int:
        """Which messages of an entry a consumer has not answered, as bits."""
        return self._out.pending.mask(entry_id, consumer)

    def remove(self, consumer: Receiver) -> None:
        """Let a consumer go; what it had goes to the others."""
        if consumer not in self.consumers:
            return
        before = self.active
        self._out.selection.remove(consumer)
        consumer.detach(self)
        self._out.take_all_back(consumer, self)
        self._consumers_changed(before, None)

    def _consumers_changed(self, before: Receiver | None, joined: Receiver | None) -> None:
        """Deal again what waits for its key. Failover: what the active consumer before does not answer goes to the next, and those
        concerned are notified."""
        self._out.again(self._out.selection.release_all())
        after = self.active
        if before is not after and before is not None and before in self.consumers:
            self._replaced(before)
        for consumer in self.consumers:
            concerned = consumer is joined or (before is not after and consumer in (before, after))
            if concerned and consumer.active_changed is not None:
                consumer.active_changed(self, consumer is after)
        if self._previous is after or self._previous not in self.consumers:
            self._hand_over()
        self.wake()

    def _replaced(self, before: Receiver) -> None:
        """A connected consumer is not the active one any more: the next one gets what it does not answer."""
        if self._previous is None and self._out.pending.has(before):
            self._previous = before
            self._until = self.topic.clock.call_later(HAND_OVER_MS, self._hand_over)

    def _cursor_moved(self) -> None:
        self.host.moved(self)
        if self._previous is not None:  # it may have nothing left, which is known in a moment
            asyncio.get_running_loop().call_soon(self._hand_over_answered)

    def _hand_over_answered(self) -> None:
        if self._previous is not None and not self._out.pending.has(self._previous):
            self._hand_over()

    def _hand_over(self) -> None:
        """The active consumer gets what the one before has not acknowledged."""
        previous, self._previous = self._previous, None
        if previous is None:
            return
        if self._until is not None:
            self._until.cancel()
        if previous is not self.active and previous in self.consumers:
            self._out.take_all_back(previous, self)
        self.wake()

    async def delete(self, *, force: bool = True) -> None:
        """Delete the subscription with its cursor; its consumers are closed with SUBSCRIPTION_NOT_FOUND. Without `force` raises
        SUBSCRIPTION_BUSY if it has consumers."""
        if self.consumers and not force:
            raise connected_error(self.name)
        self.deleted = True
        self.dissolve(
            PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, f"subscription {self.name} was deleted")
        )
        self.host.removed(self)
        await self.delete_cursor()

    def drop_unused(self) -> None:
        """Delete a subscription that is not durable, once it has no consumer."""
        if not self.consumers and not self.deleted:
            self.deleted = True
            self.close()
            self.host.removed(self)

    def dissolve(self, reason: PenstockError, *, with_topic: bool = False) -> None:
        """The subscription is deleted: remove its consumers, and close those that have no other. If its topic is
        deleted, those that follow topics that come later stay."""
        for consumer in list(self.consumers):
            self.remove(consumer)
            if not consumer.sources and not (with_topic and consumer.follows):
                consumer.close(reason)
        self.close()

    def close(self) -> None:
        """Disconnect the consumers and stop the clocks; the cursor stays as it is."""
        for consumer in list(self.consumers):
            consumer.close()
        self._out.close()
        self._delivering.reading.close()

    # -- the cursor

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """As `broker.Subscription.seek`; forgets what `move` forgets."""
        if isinstance(target, int):
            await self.move(await self.topic.offset_at_time(target))
        else:
            await self.move(await self.topic.offset_after(target, inclusive=inclusive))

    async def move(self, offset: int) -> None:
        """Continue at `offset`, durably; forgets unacknowledged and delayed messages, and acknowledgements beyond it."""
        self._restart()
        self.cursor.reset(offset)
        self.host.rewound()
        self._moved()
        self.wake()
        await self.flush()

    def _restart(self) -> None:
        """Nothing of before is out, waits or was read."""
        for consumer in self.consumers:
            consumer.forget(self)
        self._out.forget()
        self._delivering.reading.restart()

    def skip(self, offset: int) -> None:
        # The read position stays: what it passed is outstanding or to be redelivered, and skipped messages it passes over.
        self._out.acknowledged_below(min(offset, self.topic.next_offset))
        self.wake()

    def trimmed(self, first_offset: int) -> None:
        """Retention deleted everything below `first_offset`."""
        if self.cursor.mark < first_offset:
            self._out.replay.drop_before(first_offset)
            for consumer in self.consumers:
                consumer.forget(self, first_offset)
            self._out.acknowledged_below(first_offset)

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        owner: str | None,
        is_error: bool,
        schema_version: int | None,
    ) -> Outcome:
        holder = self.answers.holder(message_id.entry, message_id.batch_index, owner)
        return await self.host.reply(self, holder, Reply(message_id, content, is_error, schema_version))

    # -- figures

    def figures(self) -> SubscriptionFigures:
        return SubscriptionFigures(
            type=self.type,
            durable=self.durable,
            properties=self.properties,
            mark=self.cursor.mark,
            beyond=self.cursor.beyond,
            next_entry=self._delivering.reading.next_entry,
            backlog=self.backlog,
            delayed=self._out.delayed,
            unacked=self.unacked,
            redelivered=self._out.redelivered,
            rate_out=self.rate_out,
            dead_letters=self.dead_letters,
            connected=[one.name for one in self.consumers],
            drained=self.drained,
        )

    @property
    def backlog(self) -> int:
        """Messages not acknowledged."""
        return max(0, self.topic.next_offset - self.cursor.mark - self.cursor.beyond)

    @property
    def unacked(self) -> int:
        """Messages out and not acknowledged."""
        return self._out.pending.messages

    @property
    def idle(self) -> bool:
        """Whether nothing is under way: no run is due, no read is out."""
        return self._delivering.idle

    @property
    def drained(self) -> bool:
        """Whether the topic is terminated and nothing is left to deliver."""
        return self.topic.terminated and self._delivering.drained
