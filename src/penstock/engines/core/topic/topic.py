"""A topic: a log, its producers and subscriptions, and the limits of its policies. A partition is a topic, too."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Protocol

import msgspec

from penstock.broker.topic import BacklogFigures, Publisher, TopicFigures, producer_key
from penstock.engines.core.ports import LogState, Store
from penstock.engines.core.topic.log import Kept
from penstock.engines.core.topic.sequences import Sequences
from penstock.engines.shared.tail import TailCache, stored
from penstock.engines.subscription.compaction import Compaction
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce
from penstock.model.stage import Span
from penstock.runtime.clock import Clock
from penstock.runtime.statistics import LATENCY_MS, Histogram, Rate
from penstock.runtime.tasks import finished

from .access import Access
from .backlog import Backlog
from .log import TopicLog
from .served import ServedTopic, check_room


class TopicListener(Protocol):
    """What the broker does when something happens to one of its topics."""

    async def opened(self, topic: "Topic") -> None:
        """The topic is about to be used for the first time since the start."""

    def appended(self, topic: "Topic") -> None:
        """The log grew. Only called of a topic that its policies bound."""

    def over_quota(self, topic: "Topic") -> None:
        """The backlog is beyond a quota that moves the slowest subscriptions on."""

    async def trimming(self, topic: "Topic", before_entry: int) -> None:
        """The entries before `before_entry` are deleted once this completes."""

    async def deleted(self, topic: "Topic") -> None:
        """The topic and its log are deleted."""


class TopicParts(msgspec.Struct, frozen=True):
    """What a topic is opened with."""

    access: Access
    compaction: Compaction
    policies: InForce
    listener: TopicListener
    hold_ms: int  # how long a publish waits for room at most
    terminated: bool = False
    bytes_max: int | None = None  # of a non-persistent topic; None: policies alone bound it


class Topic(TopicLog, ServedTopic):
    """`broker.Topic`: one log with its subscriptions and producers. All methods run on the loop's thread."""

    def __init__(
        self,
        name: TopicName,
        state: LogState,
        store: Store,
        tails: TailCache,
        clock: Clock,
        parts: TopicParts,
    ) -> None:
        super().__init__(name, state, store, tails, clock, terminated=parts.terminated)
        ServedTopic.__init__(self, clock, parts.policies, parts.hold_ms)
        self.access = parts.access
        self.producers = parts.access.producers
        self.compaction = parts.compaction
        self.listener = parts.listener
        self.subscriptions = self.served
        self.sequences = Sequences(state.producers, clock.monotonic_ms)
        self.last_sequence_id = self.sequences.last
        self.rate_in = Rate(clock)
        evict = partial(parts.listener.over_quota, self)
        self.backlog = Backlog(self, self.subscriptions, self.rate_in, parts.policies, evict, parts.hold_ms)
        self.last_publish_ms = 0
        self.write_latency: Histogram | None = None  # ms until durable, once something was appended
        self._kept = None if parts.bytes_max is None else Kept(parts.bytes_max)
        self.apply(parts.policies)

    async def measure_backlog(self) -> BacklogFigures:
        found = await self.backlog.measure()
        return BacklogFigures(found.bytes, found.oldest_ms, found.empty)

    def check_shared(self) -> None:
        access = self.access
        if access.alone is not None or access.waiting:
            access.check_shared()

    def figures(self) -> TopicFigures:
        return TopicFigures(
            policies=self.policies,
            rate_in=self.rate_in,
            last_publish_ms=self.last_publish_ms,
            write_latency=self.write_latency,
            compaction=self.compaction,
            epoch=self.access.epoch,
            used=bool(self.next_offset or self.producers or self.consumer_count),
        )

    # -- writing

    async def append(self, entries: Sequence[NewEntry]) -> AppendResult:
        """Append `entries` durably, wake followers, and return their first position.

        Waits while the backlog is beyond a quota that holds producers. Raises TOPIC_TERMINATED, TOPIC_NOT_FOUND
        once deleted, BACKLOG_QUOTA_HOLD, BACKLOG_QUOTA_EXCEPTION, and what the store raises.
        """
        if self.terminated or self.deleted:
            self.check_open()
        if self._quotas and not self.backlog.surely_room:
            await self.backlog.admit()
            self.check_open()
        if self.rates.publish is not None:
            await self.rates.publish.admit(
                sum(new.count for new in entries), sum(len(new.data) for new in entries)
            )
            self.check_open()
        began = perf_counter()
        appended = self.store.append(self.ledger, entries)
        placed = appended.result() if appended.done() else await finished(appended)
        if self.write_latency is None:
            self.write_latency = Histogram(LATENCY_MS)
        self.write_latency.observe((perf_counter() - began) * 1000)
        self._appended(placed, entries)
        if self._kept is not None:
            await self._drop_oldest(self._kept)
        return placed

    async def _drop_oldest(self, kept: Kept) -> None:
        first = kept.first_after_letting_go()
        if first is not None:
            self.first_entry, self.first_offset = first
            self.size_bytes = kept.bytes
            for subscription in self.subscriptions.values():
                subscription.trimmed(self.first_offset)
            await self.store.trim(self.ledger, self.first_entry)

    def _appended(self, placed: AppendResult, entries: Sequence[NewEntry]) -> None:
        messages, size = self._tails.append(self._tail, self.ledger, placed, entries)
        if self._kept is not None:
            for entry in stored(self.ledger, placed, entries):
                self._kept.add(entry.entry_id, entry.offset, len(entry.data))
        self._grew(placed.entry_id + len(entries), placed.offset + messages, messages, size)

    def committed(self, span: Span) -> None:
        """A commit of stages appended entries; they are in the store only."""
        self._tail.clear()
        self._grew(span.entry_id + span.entries, span.offset + span.messages, span.messages, span.size_bytes)

    def _grew(self, next_entry: int, next_offset: int, messages: int, size: int) -> None:
        if next_entry > self.next_entry:
            self.next_entry, self.next_offset = next_entry, next_offset
        self.size_bytes += size
        self.rate_in.add(messages, size)
        self.last_publish_ms = self.clock.now_ms()
        if self.bounded:
            self.listener.appended(self)
        self.wake()

    def wake(self) -> None:
        """Wake subscriptions and followers; carries no data."""
        for subscription in self.subscriptions.values():
            subscription.wake()
        for follower in tuple(self.followers):
            follower()

    async def trim(self, before_entry: int) -> None:
        """Delete the entries before `before_entry`."""
        before_entry = min(before_entry, self.next_entry)
        if before_entry > self.first_entry:
            await self.listener.trimming(self, before_entry)
        if before_entry <= self.first_entry:
            return
        if before_entry < self.next_entry:
            first_offset = (await self.read(before_entry, 1))[0].offset
        else:
            first_offset = self.next_offset
        gone = await finished(self.store.trim(self.ledger, before_entry))
        self.size_bytes -= gone  # the current value: more may have been appended since
        if before_entry <= self.first_entry:  # another trim went further
            return
        self.first_entry, self.first_offset = before_entry, first_offset
        for subscription in self.subscriptions.values():
            subscription.trimmed(first_offset)

    async def forget_producers(self, names: Sequence[str]) -> None:
        """Forget the sequence ids of producers that were silent for long."""
        self.sequences.forget(names)
        await self.store.forget_producers(self.ledger, names)

    # -- its producers

    async def admit(self, producer: Publisher, queued: Callable[[], None] | None = None) -> None:
        """Let a producer in, as `Access.enter` does; one that comes back takes its own place.

        Raises PRODUCER_BUSY if the topic has its maximum.
        """
        most = self.policies.max_producers
        if not producer.options.stateless and producer_key(producer) not in self.producers:
            check_room(
                ErrorKind.PRODUCER_BUSY, most, len(self.producers), f"topic {self.name} has {most} producers"
            )
        await self.access.enter(producer, queued)
        self.check_open()

    # -- its policies, and its end

    def apply(self, policies: InForce) -> None:
        """Have these policies bound the topic from now on."""
        self.backlog.policies = policies
        self.bounded = self.name.persistent and not policies.keeps_all
        self._quotas = policies.size_quota.limit >= 0 or policies.age_quota.limit >= 0
        super().apply(policies)

    def rewound(self) -> None:
        self.backlog.forget()

    def refuse_waiting(self, why: PenstockError) -> None:
        """Publishes that wait for a quota or a rate fail with `why`, now and later."""
        self.backlog.end(why)
        self.rates.end(why)

    def terminate(self) -> None:
        """Take no more messages."""
        self.terminated = True
        self.wake()

    def close(self, why: PenstockError) -> None:
        """The topic is deleted: close its producers, and the consumers that have no other topic, with `why`."""
        self.deleted = True
        for producer in list(self.producers.values()):
            producer.close(why)
        for subscription in list(self.subscriptions.values()):
            subscription.deleted = True
            subscription.dissolve(why, with_topic=True)
        self.wake()
