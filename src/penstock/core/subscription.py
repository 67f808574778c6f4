"""A subscription: what of a topic is acknowledged, what is out, and what goes to whom next.

An append only wakes it. A run then delivers as long as somebody has room: first what is to be delivered again,
in the order of the log, then what was never read. It runs on the loop without waiting; where entries are not in
memory it asks the store and runs again when they came.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import key_shared_hash
from penstock.model.message_id import MessageId
from penstock.model.policy import SubscriptionType

from .consumer import Consumer, Delivery
from .counting import check_consumers
from .key_order import KeyOrder
from .offsets import OffsetSet
from .pending import Pending, PendingTable, bits_of, lowest_bits
from .ports import CursorChange, EntryFormat
from .rates import Rate
from .reading import AHEAD_ENTRIES_MAX, Reading
from .redelivery import DeadLetterWriter, Redelivery
from .replay import Slice
from .requests import Requests
from .selection import Active, ByKey, RoundRobin
from .tasks import Tasks
from .topic import Topic

RUN_ENTRIES_MAX: Final = 256  # entries a run delivers before others have their turn on the loop
SKIP_READS_MIN: Final = 1000  # acknowledged offsets ahead that are worth a look-up rather than reading over


class Subscription:
    """One subscription of one topic. `dirty` is told when its cursor needs saving."""

    def __init__(
        self,
        topic: Topic,
        name: str,
        *,
        cursor: OffsetSet,
        durable: bool,
        encoder: EntryFormat,
        tasks: Tasks,
        dirty: Callable[["Subscription"], None],
        bury: DeadLetterWriter,
        requests: Requests,
        properties: dict[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self.name = name
        self.cursor = cursor
        self.durable = durable
        self.type: SubscriptionType | None = None
        self.properties = properties or {}
        self.rate_out = Rate(topic.clock)
        self.requests = requests
        self.deleted = False
        self.compacted = False  # whether its consumers see of what was compacted only the last values
        self._encoder = encoder
        self._dirty = dirty
        self._bury = bury
        self._selection: Active | RoundRobin | ByKey = RoundRobin()
        self._keys: KeyOrder | None = None
        self._pending = PendingTable()
        self._reading = Reading(topic, tasks, self.wake)
        self._back = Redelivery(
            topic,
            tasks,
            wake=self.wake,
            bury=lambda entry, index, letter, times: bury(self, entry, index, letter, times),
            buried=self._acknowledged,
            left=lambda dead: dead.mask & ~self.cursor.mask(dead.offset, dead.count),
        )
        self._scheduled = False

    # -- consumers

    @property
    def consumers(self) -> list[Consumer]:
        return self._selection.consumers

    def add(self, consumer: Consumer, *, unique_name: bool = False) -> None:
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
        check_consumers(self)
        if not self.consumers:
            self._select_for(wanted)
            self.compacted = consumer.options.compacted
        before = self.active
        self._selection.add(consumer)
        self.topic.consumer_count += 1
        consumer.attach(self)
        if self._keys is not None:
            self._back.again(self._keys.release_all())
        self._active_changed(before, consumer)
        self.wake()

    def _select_for(self, wanted: SubscriptionType) -> None:
        self.type = wanted
        self._keys = None
        if wanted is SubscriptionType.SHARED:
            self._selection = RoundRobin()
        elif wanted is SubscriptionType.KEY_SHARED:
            self._selection = ByKey()
            self._keys = KeyOrder()
        else:
            self._selection = Active(
                exclusive=wanted is SubscriptionType.EXCLUSIVE, partition=self.topic.name.partition
            )

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go; what it had goes to the others."""
        if consumer not in self.consumers:
            return
        before = self.active
        self._selection.remove(consumer)
        self.topic.consumer_count -= 1
        consumer.detach(self)
        self._take_back(consumer)
        if self._keys is not None:
            self._back.again(self._keys.release_all())
        self._active_changed(before, None)
        self.wake()

    @property
    def active(self) -> Consumer | None:
        return self._selection.active if isinstance(self._selection, Active) else None

    def _active_changed(self, before: Consumer | None, joined: Consumer | None) -> None:
        """Failover: what the one before has goes to the next, and those concerned are told."""
        after = self.active
        if before is not after and before is not None and before in self.consumers:
            self._take_back(before)
        for consumer in self.consumers:
            told = consumer.active_changed
            if told is not None and (
                consumer is joined or (before is not after and consumer in (before, after))
            ):
                told(self, consumer is after)

    def _take_back(self, consumer: Consumer) -> None:
        """Everything a consumer has is to be delivered again; what it never took does not count as tried."""
        untouched: dict[int, int] = {}
        for delivery in consumer.outbox:
            if delivery.subscription is self:
                entry_id = delivery.entry.entry_id
                untouched[entry_id] = untouched.get(entry_id, 0) | delivery.mask
        consumer.forget(self)
        for part in self._pending.with_consumer(consumer):
            fresh = part.mask & untouched.get(part.entry_id, 0)
            self._return(part, fresh, counts=False, delay_ms=0)
            if part.mask:
                self._return(part, part.mask, counts=True, delay_ms=0)

    # -- delivering

    def wake(self) -> None:
        """Something changed: run soon. Wakes between two runs are one."""
        if not self._scheduled and not self._reading.busy and self._selection.consumers:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self.deleted or self._reading.busy:
            return
        if self._keys is not None:
            self._back.again(self._keys.release_for_room())
        for _ in range(RUN_ENTRIES_MAX):
            if not self._step():
                break
        else:
            self.wake()
        if self.topic.terminated and self.drained:
            for consumer in self.consumers:
                if consumer.end_reached is not None:
                    consumer.end_reached()

    def _step(self) -> bool:
        """Deliver one entry, or part of it; False when nothing can be done now."""
        if not self._selection.ready():
            return False
        first = self._back.replay.first()
        if first is not None:
            return self._replay_one(first)
        if self._keys is not None and self._keys.full:
            return False
        return self._read_one()

    def _replay_one(self, first: Slice) -> bool:
        """Deliver what is to be delivered again."""
        entry = self._reading.held(first.entry_id)
        if entry is None:
            if first.entry_id < self.topic.first_entry:
                self._back.replay.pop()  # retention let go of it
                return True
            self._reading.fetch(first.entry_id, self._back.replay.run_length(AHEAD_ENTRIES_MAX))
            return False
        self._back.replay.pop()
        mask = first.mask & ~self.cursor.mask(entry.offset, entry.count)
        self._offer(entry, mask & ~self._pending.mask(entry.entry_id))
        return True

    def _read_one(self) -> bool:
        """Deliver the next entry that was never read."""
        reading = self._reading
        if reading.next_entry is None:
            reading.locate(self.cursor.mark)
            return False
        if reading.next_entry >= self.topic.next_entry:
            return False
        entry = reading.held(reading.next_entry)
        if entry is None:
            if reading.next_entry < self.topic.first_entry:
                reading.next_entry = self.topic.first_entry
                return True
            reading.fetch(reading.next_entry)
            return False
        reading.next_entry += 1
        known = self.cursor.mask(entry.offset, entry.count)
        mask = ((1 << entry.count) - 1) & ~known
        if known:
            mask &= ~self._pending.mask(entry.entry_id)
            if not mask:
                gap = self.cursor.next_gap(entry.end)
                if gap - entry.end > SKIP_READS_MIN:
                    reading.locate(gap)
                    return False
        if mask and self.compacted and (kept := self.topic.compaction.kept) is not None:
            seen = kept.mask(entry.offset, entry.count)
            self._acknowledged(entry.offset, mask & ~seen)
            mask &= seen
            if not mask and (following := kept.next(entry.end)) - entry.end > SKIP_READS_MIN:
                self._acknowledged(entry.end, (1 << (following - entry.end)) - 1)
                reading.locate(following)
                return False
        if mask:
            self._offer(entry, mask)
        return True

    def _offer(self, entry: Entry, mask: int) -> None:
        """Give the messages in `mask` to whose turn it is; what nobody can take is kept for the next run."""
        if not mask:
            return
        shared = not isinstance(self._selection, Active)
        if shared and entry.deliver_at:
            wait = entry.deliver_at - self.topic.clock.now_ms()
            if wait > 0:
                self._back.later(Slice(entry.entry_id, entry.offset, entry.count, mask), wait)
                return
        if isinstance(self._selection, ByKey):
            self._offer_by_key(self._selection, entry, mask)
            return
        # A batch is spread over those who share, lest one of them gets all of a request's messages.
        share = -(-mask.bit_count() // len(self.consumers)) if shared else mask.bit_count()
        while mask:
            consumer = self._selection.pick()
            if consumer is None:
                self._back.replay.add(Slice(entry.entry_id, entry.offset, entry.count, mask))
                return
            part = mask
            if not consumer.options.whole_entries:
                part = lowest_bits(mask, min(share, consumer.capacity()))
            mask &= ~part
            self._deliver(consumer, entry, part, None)

    def _offer_by_key(self, selection: ByKey, entry: Entry, mask: int) -> None:
        order = self._keys
        if order is None:
            return
        keys = self._encoder.keys(entry)
        if any(c.options.whole_entries for c in selection.consumers):
            # Whoever acknowledges entries as a whole must get them whole, as in Pulsar.
            keys = keys[:1] * entry.count
        hashes = [key_shared_hash(k) for k in keys]
        same = len(set(hashes)) == 1
        by_hash: dict[int, int] = {}
        for index in bits_of(mask):
            by_hash[hashes[index]] = by_hash.get(hashes[index], 0) | 1 << index
        going: dict[Consumer, int] = {}
        for key_hash, bits in by_hash.items():
            consumer = selection.owner(key_hash)
            rest = bits
            if consumer is not None and order.may_go(key_hash, consumer):
                room = consumer.capacity() - going.get(consumer, 0).bit_count()
                part = (
                    bits if consumer.options.whole_entries and room > 0 else lowest_bits(bits, max(0, room))
                )
                if part:
                    going[consumer] = going.get(consumer, 0) | part
                    order.gone(key_hash, consumer, part.bit_count())
                    rest = bits & ~part
                short = consumer
            else:
                short = None
            if rest:
                order.wait(key_hash, Slice(entry.entry_id, entry.offset, entry.count, rest), short)
        for consumer, part in going.items():
            self._deliver(consumer, entry, part, hashes[0] if same else hashes)

    def _deliver(self, consumer: Consumer, entry: Entry, mask: int, hashes: int | list[int] | None) -> None:
        if not consumer.options.auto_ack:
            part = Pending(consumer, entry.entry_id, entry.offset, entry.count, mask, hashes)
            self._pending.add(part)
            timeout = consumer.options.ack_timeout_ms
            if timeout:
                self._back.watch(part, timeout, self._timed_out)
        self.rate_out.add(mask.bit_count(), len(entry.data))
        for redeliveries, bits in self._back.by_times(entry, mask):
            consumer.deliver(Delivery(self, entry, bits, redeliveries))
        if consumer.options.auto_ack:
            self.cursor.add(entry.offset, mask)

    # -- coming back

    def _timed_out(self, part: Pending) -> None:
        if part.mask:
            self._return(part, part.mask, counts=True, delay_ms=0)
            self.wake()

    def _return(self, part: Pending, mask: int, *, counts: bool, delay_ms: int) -> None:
        """Take messages back from a consumer and see that they are delivered again, or buried."""
        mask &= part.mask
        if not mask:
            return
        self._settle(part, mask)
        back = Slice(part.entry_id, part.offset, part.count, mask)
        if counts:
            self._back.count(back, part.consumer.options.dead_letter)
        if not back.mask:
            return
        if delay_ms > 0:
            self._back.later(back, delay_ms)
        else:
            self._back.replay.add(back)

    def _settle(self, part: Pending, mask: int) -> None:
        part.mask &= ~mask
        if not part.mask:
            self._pending.drop(part)
        if self._keys is not None:
            for key_hash, count in part.hash_counts(mask).items():
                freed = self._keys.settled(key_hash, count)
                if freed:
                    self._back.again(freed)
                    self.wake()
        part.consumer.settled(mask.bit_count())

    def give_back(self, consumer: Consumer, delivery: Delivery) -> None:
        """What a consumer took but could not hand on goes out again without counting."""
        for part in list(self._pending.of(delivery.entry.entry_id)):
            if part.consumer is consumer:
                self._return(part, delivery.mask, counts=False, delay_ms=0)
        self.wake()

    # -- answers

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message (or a whole entry, index -1) that is out; False when the entry is not out."""
        held = self._pending.of(entry_id)
        if not held:
            return False
        offset, count = held[0].offset, held[0].count
        if index >= count:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"entry {entry_id} has no message {index}")
        mask = (1 << count) - 1 if index < 0 else 1 << index
        for part in list(held):
            hit = part.mask & mask
            if hit:
                self._settle(part, hit)
        self._acknowledged(offset, mask)
        return True

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: Consumer) -> bool:
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
                self._settle(part, hit)
        self._acknowledged(offset, mask)
        return True

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: Consumer) -> None:
        """The same of an entry that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""
        if 0 <= entry_id < self.topic.first_entry:
            return
        entry = await self.topic.entry(entry_id)
        if not self.acknowledge_but(entry_id, unacked, consumer):
            self._acknowledged(entry.offset, ((1 << entry.count) - 1) & ~unacked)

    async def acknowledge_late(self, message_id: MessageId) -> None:
        """Acknowledge a message that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""
        if 0 <= message_id.entry < self.topic.first_entry:
            return
        entry = await self.topic.entry(message_id.entry)
        index = message_id.batch_index
        if index >= entry.count:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"entry {message_id.entry} has no message {index}"
            )
        if not self.acknowledge(message_id.entry, index):
            self._acknowledged(entry.offset, (1 << entry.count) - 1 if index < 0 else 1 << index)

    def _acknowledged(self, offset: int, mask: int) -> None:
        new = self.cursor.add(offset, mask)
        if new:
            self._back.acknowledged(offset, new)
            self._dirty(self)

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with a message; raises MESSAGE_NOT_FOUND past the end."""
        if message_id.entry < self.topic.first_entry:
            return
        held = self._pending.of(message_id.entry)
        if held:
            offset, count = held[0].offset, held[0].count
        else:
            entry = await self.topic.entry(message_id.entry)
            offset, count = entry.offset, entry.count
        if message_id.batch_index >= count:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"entry {message_id.entry} has no message {message_id.batch_index}",
            )
        end = offset + (message_id.batch_index + 1 if message_id.batch_index >= 0 else count)
        self._raise_mark(end)

    def _raise_mark(self, end: int) -> None:
        for part in self._pending.all():
            if part.offset < end:
                self._settle(part, part.mask & ((1 << max(0, end - part.offset)) - 1))
        self._back.acknowledged_below(end)
        self.cursor.raise_mark(end)
        self._dirty(self)

    def negative(self, entry_id: int, index: int, delay_ms: int, by: Consumer | None = None) -> bool:
        """Have a message that is out, with `by` or (None) with anybody, delivered again after a delay.

        False when it is not out.
        """
        found = False
        for part in list(self._pending.of(entry_id)):
            if by is not None and part.consumer is not by:
                continue
            mask = part.mask if index < 0 else part.mask & (1 << index)
            if mask:
                self._return(part, mask, counts=True, delay_ms=delay_ms)
                found = True
        if found:
            self.wake()
        return found

    def has_out(self, entry_id: int, index: int, consumer: Consumer | None) -> bool:
        """Whether a message is out, with `consumer` or (None) with anybody."""
        bit = -1 if index < 0 else 1 << index
        return any(
            part.mask & bit and (consumer is None or part.consumer is consumer)
            for part in self._pending.of(entry_id)
        )

    def holder(self, entry_id: int, index: int, owner: str | None) -> Consumer | None:
        """The consumer of `owner` that a message is out with, else any of its consumers, which then has it not;
        None, which is anybody, where nobody owns consumers."""
        if owner is None:
            return None
        own = [consumer for consumer in self.consumers if consumer.owner == owner]
        if not own:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{owner!r} has no consumer of {self.name}")
        return next((one for one in own if self.has_out(entry_id, index, one)), own[0])

    def redeliver_all(self, consumer: Consumer) -> None:
        """Deliver again everything that a consumer has; what it never took does not count as tried."""
        self._take_back(consumer)
        self.wake()

    # -- the cursor

    async def seek(self, target: MessageId, *, inclusive: bool = False) -> None:
        """Go on after `target`, as `move` does."""
        await self.move(await self.topic.offset_after(target, inclusive=inclusive))

    async def seek_time(self, publish_time: int) -> None:
        """Go on with the first message published at or after `publish_time` (ms), as `move` does."""
        await self.move(await self.topic.offset_at_time(publish_time))

    async def move(self, offset: int) -> None:
        """Go on at `offset`, durably; forgets what is out, acknowledged beyond it and delayed."""
        self._forget_out()
        self.cursor.reset(offset)
        self.topic.backlog.forget()
        self._dirty(self)
        self.wake()
        await self.flush()

    def _forget_out(self) -> None:
        if self._keys is not None:
            self._keys.clear()
        for consumer in self.consumers:
            consumer.forget(self)
        for part in self._pending.all():
            count = part.mask.bit_count()
            part.mask = 0  # its timer finds nothing
            part.consumer.settled(count)
        self._pending.clear()
        self._back.forget()
        self._reading.restart()

    def skip(self, offset: int) -> None:
        """Count everything below `offset` as acknowledged."""
        # Reading goes on where it is: what it passed is out or to come again, and what is skipped it passes over.
        self._raise_mark(min(offset, self.topic.next_offset))
        self.wake()

    def trimmed(self, first_offset: int) -> None:
        """Retention let go of everything below `first_offset`."""
        if self.cursor.mark < first_offset:
            self._back.replay.drop_before(first_offset)
            for consumer in self.consumers:
                consumer.forget(self, first_offset)
            self._raise_mark(first_offset)

    def take_changes(self) -> CursorChange:
        """What is to be saved now."""
        chunks = self.cursor.take_changes()
        return CursorChange(self.topic.ledger, self.name, self.cursor.mark, chunks)

    async def flush(self) -> None:
        """Complete when every acknowledgement given so far is durable."""
        if not self.durable or self.deleted:
            return
        change = self.take_changes()
        try:
            await self.topic.store.save_cursors((change,))
        except PenstockError:
            self.cursor.touch(change.chunks)
            self._dirty(self)
            raise

    def dissolve(self, reason: PenstockError, *, with_topic: bool = False) -> None:
        """The subscription is deleted: let everybody go, and close who has nothing left. Where its topic went,
        those who follow topics that come later stay."""
        for consumer in list(self.consumers):
            self.remove(consumer)
            if not consumer.attached and not (with_topic and consumer.follows):
                consumer.close(reason)
        self.close()

    def close(self) -> None:
        """Disconnect everybody and stop the clocks; the cursor stays as it is."""
        for consumer in list(self.consumers):
            consumer.close()
        self._back.close()

    # -- figures

    @property
    def backlog(self) -> int:
        """Messages not acknowledged."""
        return max(0, self.topic.next_offset - self.cursor.mark - self.cursor.beyond)

    @property
    def unacked(self) -> int:
        """Messages out and not acknowledged."""
        return self._pending.messages

    @property
    def redelivered(self) -> int:
        """Messages that came back, ever."""
        return self._back.total

    @property
    def delayed(self) -> int:
        """Messages that wait for their time."""
        return self._back.delayed

    @property
    def idle(self) -> bool:
        """Whether nothing is under way: no run is due, no read is out."""
        return not self._scheduled and not self._reading.busy

    @property
    def drained(self) -> bool:
        """Whether the topic is terminated and nothing is left to deliver."""
        return (
            self.topic.terminated
            and not self._back.replay
            and not self._back.delayed
            and not (self._keys is not None and self._keys.aside)
            and (self.backlog == 0 or (self._reading.next_entry or 0) >= self.topic.next_entry)
        )
