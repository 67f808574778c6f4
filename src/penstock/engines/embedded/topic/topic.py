"""A topic: one log, who reads it, and what was published to it last. A partition is a topic too."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Final, Protocol

import msgspec

from penstock.engines.embedded.log.compaction import Compaction
from penstock.engines.embedded.log.sequences import Sequences
from penstock.engines.embedded.log.tail import Tail, TailCache
from penstock.engines.embedded.log.transient import Kept
from penstock.engines.embedded.ports import Clock, LogState, Store
from penstock.engines.embedded.ports.log import READ_BYTES
from penstock.engines.embedded.runtime.histogram import Histogram
from penstock.engines.embedded.runtime.rates import Rate
from penstock.engines.embedded.runtime.tasks import finished
from penstock.engines.embedded.runtime.throttle import PublishThrottle, Throttle
from penstock.engines.embedded.subscription import Subscription
from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import InForce, TopicRate
from penstock.model.stage import Span

from .access import Access
from .backlog import Backlog

LATENCY_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)  # the buckets of Pulsar's storage_write_latency
TIME_MAX: Final = 2**63 - 1  # ms; what the store can compare


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


class Topic:
    """One log with its subscriptions and producers. All methods run on the loop's thread."""

    def __init__(
        self,
        name: TopicName,
        state: LogState,
        store: Store,
        tails: TailCache,
        clock: Clock,
        parts: TopicParts,
    ) -> None:
        self.name = name
        self.access = parts.access
        self.compaction = parts.compaction
        self.clock = clock
        self.ledger = state.ledger
        self.first_entry = state.first_entry
        self.next_entry = state.next_entry
        self.first_offset = state.first_offset
        self.next_offset = state.next_offset
        self.size_bytes = state.size_bytes
        self.store = store
        self.terminated = parts.terminated
        self.deleted = False
        self.subscriptions: dict[str, Subscription] = {}
        self.producers = parts.access.producers
        self.read_bytes_max = READ_BYTES  # what one read may bring: a single entry may be larger
        self.sequences = Sequences(state.producers, clock.monotonic_ms)
        self.last_publish_ms = 0
        self.followers: set[Callable[[], None]] = set()  # called when the log grew, ended or was deleted
        self.rate_in = Rate(clock)
        self.backlog = Backlog(self, partial(parts.listener.over_quota, self), parts.hold_ms)
        self.write_latency: Histogram | None = None  # ms until durable, once something was appended
        self.listener = parts.listener
        self._hold_ms = parts.hold_ms
        self._kept = None if parts.bytes_max is None else Kept(parts.bytes_max)
        self._publish_throttle: PublishThrottle | None = None  # rates that policies bound
        self._dispatch_throttle: Throttle | None = None
        self._tails = tails
        self._tail = Tail()
        self.apply(parts.policies)

    @property
    def partition(self) -> int:
        """The partition's number as REST counts it: a topic without partitions is its own partition 0."""
        return max(0, self.name.partition)

    @property
    def consumer_count(self) -> int:
        """Of all subscriptions together."""
        return sum(len(one.consumers) for one in self.subscriptions.values())

    @property
    def used(self) -> bool:
        """Whether it has messages, or somebody is connected."""
        return bool(self.next_offset or self.producers or self.consumer_count)

    # -- its policies, and its end

    def apply(self, policies: InForce) -> None:
        """Have these policies bound the topic from now on."""
        self.policies = policies
        self.bounded = self.name.persistent and not policies.keeps_all
        if self._publish_throttle is not None:
            if self._publish_throttle.rate != policies.publish_rate:
                self._publish_throttle.change(policies.publish_rate)
        elif policies.publish_rate.bounded:
            self._publish_throttle = PublishThrottle(policies.publish_rate, self.clock, self._hold_ms)
        self._dispatch_throttle = self._throttle(self._dispatch_throttle, policies.dispatch_rate)
        for subscription in self.subscriptions.values():
            self.bound(subscription)

    def bound(self, subscription: Subscription) -> None:
        """Have the topic's policies bound a subscription."""
        subscription.unacked_max = self.policies.max_unacked_per_consumer
        rate = self.policies.subscription_dispatch_rate
        own = subscription.throttle = self._throttle(subscription.throttle, rate)
        subscription.limit_rate(tuple(one for one in (self._dispatch_throttle, own) if one is not None))
        for consumer in subscription.consumers:
            consumer.bound_unacked()

    def _throttle(self, had: Throttle | None, rate: TopicRate) -> Throttle | None:
        if not rate.bounded:
            return None
        return had if had is not None and had.rate == rate else Throttle(rate, self.clock)

    def refuse_waiting(self, why: PenstockError) -> None:
        """Publishes that wait for a quota or a rate fail with `why`, now and later."""
        self.backlog.end(why)
        if self._publish_throttle is not None:
            self._publish_throttle.end(why)

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

    # -- writing

    async def append(self, entries: Sequence[NewEntry]) -> AppendResult:
        """Append `entries` durably, wake who follows, and return where they begin.

        Waits while the backlog is beyond a quota that holds producers. Raises TOPIC_TERMINATED, TOPIC_NOT_FOUND
        once deleted, BACKLOG_QUOTA_HOLD, BACKLOG_QUOTA_EXCEPTION, and what the store raises.
        """
        self.check_open()
        if not self.backlog.surely_room:
            await self.backlog.admit()
            self.check_open()
        if self._publish_throttle is not None:
            await self._publish_throttle.admit(
                sum(new.count for new in entries), sum(len(new.data) for new in entries)
            )
            self.check_open()
        began = perf_counter()
        placed = await finished(self.store.append(self.ledger, entries))
        if self.write_latency is None:
            self.write_latency = Histogram(LATENCY_MS)
        self.write_latency.observe((perf_counter() - began) * 1000)
        self._stored(placed, entries)
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

    def check_open(self) -> None:
        """Raise unless the topic takes messages."""
        if self.terminated:
            raise PenstockError(ErrorKind.TOPIC_TERMINATED, f"{self.name} is terminated")
        self.check_there()

    def check_there(self) -> None:
        """Raise once the topic is deleted."""
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def _stored(self, placed: AppendResult, entries: Sequence[NewEntry]) -> None:
        entry_id, offset, size = placed.entry_id, placed.offset, 0
        for new in entries:
            entry = Entry(
                self.ledger, entry_id, offset, new.count, new.publish_time, new.deliver_at, new.data
            )
            self._tails.put(self._tail, entry)
            size += len(new.data)
            if self._kept is not None:
                self._kept.add(entry_id, offset, len(new.data))
            entry_id += 1
            offset += new.count
        if entry_id > self.next_entry:
            self.next_entry, self.next_offset = entry_id, offset
        self.size_bytes += size
        self.rate_in.add(offset - placed.offset, size)
        self.last_publish_ms = self.clock.now_ms()
        if self.bounded:
            self.listener.appended(self)
        self.wake()

    def committed(self, span: Span) -> None:
        """Entries were appended by a commit of what was staged; they are in the store only."""
        self._tail.entries.clear()
        entry_id, offset = span.entry_id + span.entries, span.offset + span.messages
        if entry_id > self.next_entry:
            self.next_entry, self.next_offset = entry_id, offset
        self.size_bytes += span.size_bytes
        self.rate_in.add(span.messages, span.size_bytes)
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

    # -- reading

    def peek(self, entry_id: int) -> Entry | None:
        """An entry that is still in memory."""
        return self._tail.get(entry_id)

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries from `entry_id` (or the first there is) on; empty at the end of the log."""
        entry_id = max(entry_id, self.first_entry)
        if entry_id >= self.next_entry:
            return []
        held = self._tail.slice(entry_id, entries_max, bytes_max)
        if held:
            return held
        return await self.store.read(self.ledger, entry_id, entries_max, bytes_max)

    async def size_since(self, entry_id: int) -> int:
        """Bytes of data in the entries from `entry_id` (or the first there is) on."""
        return await self.store.size_since(self.ledger, entry_id)

    def has_read(self, size: int) -> None:
        """A read of the usual size brought `size` bytes: the next may, too."""
        if size > self.read_bytes_max:
            self.read_bytes_max = size

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        """Entries from the one that holds `offset` on."""
        if offset >= self.next_offset:
            return []
        return await self.read(await self.entry_at(offset), entries_max, bytes_max)

    async def entry_at(self, offset: int) -> int:
        """The id of the entry that holds `offset`; the next one at the end of the log."""
        if offset >= self.next_offset:
            return self.next_entry
        if offset <= self.first_offset:
            return self.first_entry
        held = self._tail.entries
        if held and held[0].offset <= offset < held[-1].end:
            low, high = 0, len(self._tail.entries) - 1
            while low < high:
                middle = (low + high + 1) // 2
                if self._tail.entries[middle].offset <= offset:
                    low = middle
                else:
                    high = middle - 1
            return self._tail.entries[low].entry_id
        found = await self.store.find_offset(self.ledger, offset)
        return self.next_entry if found is None else found.entry_id

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        """The offset of the first message after `message_id` (or of it); raises BAD_PARAMETER for another
        topic's id."""
        if message_id == EARLIEST:
            return self.first_offset
        if message_id == LATEST:
            return self.next_offset
        if message_id.ledger != self.ledger:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"message id {message_id} is not of {self.name}")
        if message_id.entry < self.first_entry:
            return self.first_offset
        if message_id.entry >= self.next_entry:
            return self.next_offset
        entry = await self.entry(message_id.entry)
        if message_id.batch_index >= 0:
            return min(entry.end, entry.offset + message_id.batch_index + (0 if inclusive else 1))
        return entry.offset if inclusive else entry.end

    async def entry(self, entry_id: int) -> Entry:
        """One entry; raises MESSAGE_NOT_FOUND when the log does not hold it."""
        if not self.first_entry <= entry_id < self.next_entry:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        found = await self.read(entry_id, 1)
        if not found or found[0].entry_id != entry_id:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        return found[0]

    async def offset_at_time(self, publish_time: int) -> int:
        """The offset of the first message published at or after `publish_time` (ms); the end when none was."""
        found = await self.store.find_time(self.ledger, min(max(0, publish_time), TIME_MAX))
        return self.next_offset if found is None else found.offset

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        """Wait until there is a message at offset `beyond`, or no more can come; False when time is over."""
        changed = asyncio.Event()
        self.followers.add(changed.set)
        try:
            async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
                while self.next_offset <= beyond and not (self.terminated or self.deleted):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            self.followers.discard(changed.set)
        return self.next_offset > beyond

    def id_of(self, entry: Entry, index: int) -> MessageId:
        """The id of message `index` of an entry; -1 for one that was sent alone."""
        if index < 0:
            return MessageId(self.ledger, entry.entry_id, self.name.partition)
        return MessageId(self.ledger, entry.entry_id, self.name.partition, index, entry.count)

    async def trim(self, before_entry: int) -> None:
        """Delete the entries before `before_entry`."""
        before_entry = min(before_entry, self.next_entry)
        if before_entry > self.first_entry:
            await self.listener.trimming(self, before_entry)
        if before_entry <= self.first_entry:
            return
        if before_entry < self.next_entry:
            kept = (await self.read(before_entry, 1))[0].offset
        else:
            kept = self.next_offset
        gone = await finished(self.store.trim(self.ledger, before_entry))
        self.size_bytes -= gone  # as it is now: more may have been appended meanwhile
        if before_entry <= self.first_entry:  # another went further meanwhile
            return
        self.first_entry, self.first_offset = before_entry, kept
        for subscription in self.subscriptions.values():
            subscription.trimmed(kept)

    async def forget_producers(self, names: Sequence[str]) -> None:
        """Forget the sequence ids of producers that were silent for long."""
        self.sequences.forget(names)
        await self.store.forget_producers(self.ledger, names)
