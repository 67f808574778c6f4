"""The run of a subscription: what goes to whom next.

A run delivers as long as a consumer has room: first messages to redeliver, in the order of the log, then
messages never read. It runs on the loop without waiting; if entries are not in memory it asks the store and runs
again when they came.
"""

import asyncio
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from penstock.broker.delivery import Budget, Delivery
from penstock.engines.shared.outbox import COUNT_BYTES
from penstock.model.entry import Entry
from penstock.runtime.clock import Timer
from penstock.runtime.tasks import Tasks
from penstock.runtime.throttle import Throttle

from .compaction import Compaction
from .offsets import CHUNK
from .outstanding import Outstanding
from .pending import Pending, Slice
from .reading import AHEAD_ENTRIES_MAX, ReadFailures, Reading, last_entry
from .receiver import Receiver, Source
from .selection import ASIDE_MAX, Hashes

RUN_ENTRIES_MAX: Final = 256  # entries a run delivers before others have their turn on the loop
RUN_MESSAGES_MAX: Final = CHUNK  # of entries delivered at once: they are bits of one number
SKIP_READS_MIN: Final = 1000  # acknowledged offsets ahead that are worth a look-up rather than reading over


class Delivering:
    """Deals out the messages of one subscription to its consumers."""

    def __init__(
        self,
        subscription: Source,
        out: Outstanding,
        compaction: Compaction,
        tasks: Tasks,
        failures: ReadFailures,
    ) -> None:
        self.reading = Reading(subscription.topic, tasks, self.wake, failures)
        self._subscription = subscription
        self._topic = subscription.topic
        self._cursor = subscription.cursor
        self._rate = subscription.rate_out
        self._out = out
        self._compaction = compaction
        self._scheduled = False
        self._throttles: tuple[Throttle, ...] = ()  # rates that policies bound
        self._throttled: Timer | None = None

    def limit_rate(self, throttles: tuple[Throttle, ...]) -> None:
        """Deliver no faster than these allow, from now on."""
        self._throttles = throttles
        self.wake()

    @property
    def idle(self) -> bool:
        """Whether no run is due and no read is out."""
        return not self._scheduled and not self.reading.busy

    @property
    def drained(self) -> bool:
        """Whether everything there is was delivered."""
        out = self._out
        return (
            not out.replay
            and not out.delayed
            and not out.selection.aside
            and (self._subscription.backlog == 0 or (self.reading.next_entry or 0) >= self._topic.next_entry)
        )

    async def last_visible(self) -> tuple[Entry, int] | None:
        topic, kept = self._topic, self._compaction.kept
        if topic.next_entry == topic.first_entry:
            return None
        if not self._subscription.compacted or kept is None or topic.next_offset > kept.horizon:
            last = await last_entry(topic)
            return None if last is None else (last, (1 << last.count) - 1)
        if kept.last < topic.first_offset:
            return None
        entry = await topic.entry(await topic.entry_at(kept.last))
        return entry, kept.mask(entry.offset, entry.count)

    def upcoming(self, messages_max: int) -> Sequence[Entry]:
        return () if self._out.selection.only() is None else self.reading.upcoming(messages_max)

    # -- the run

    def wake(self) -> None:
        """Something changed: run soon. Wakes between two runs are one."""
        if not self._scheduled and not self.reading.busy:
            if self._subscription.halted or not self._out.selection.consumers:
                self.reading.drop_ahead()
                return
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self.reading.busy:
            return
        selection = self._out.selection
        source = self._subscription
        if source.deleted or source.halted or not selection.consumers:  # the last one went since the wake-up
            self.reading.drop_ahead()
            return
        self._out.again(selection.release_for_room())
        left = RUN_ENTRIES_MAX
        while left > 0 and (done := self._step(left)):
            left -= done
        if left <= 0:
            self.wake()
        self.reading.drop_passed()
        if self._topic.terminated and self.drained:
            for consumer in selection.consumers:
                if consumer.end_reached is not None:
                    consumer.end_reached()

    def _step(self, entries_max: int) -> int:
        """Deliver an entry or part of it, or a run of entries; returns how many, 0 when nothing can be done now."""
        out = self._out
        room = out.selection.room()
        if room <= 0:
            return 0
        if self._throttles and self._too_fast():
            return 0
        first = out.replay.first()
        if first is None and out.delays.ready:
            first = out.deliver_due(self._budget())
        if first is not None:
            return self._replay_one(first)
        if out.selection.aside >= ASIDE_MAX or out.full:
            return 0
        return self._read_run(min(entries_max, room)) or self._read_one()

    def _too_fast(self) -> bool:
        """Whether a rate is used up; then a timer begins the next run."""
        wait_ms = max(throttle.wait_ms() for throttle in self._throttles)
        if not wait_ms:
            return False
        if self._throttled is None:
            self._throttled = self._topic.clock.call_later(wait_ms, self._unthrottled)
        return True

    def _unthrottled(self) -> None:
        self._throttled = None
        self.wake()

    def _replay_one(self, first: Slice) -> bool:
        """Redeliver messages."""
        replay = self._out.replay
        entry = self.reading.held(first.entry_id)
        if entry is None:
            if first.entry_id < self._topic.first_entry:
                replay.pop()  # retention deleted it
                return True
            if self._topic.gap_end(first.entry_id) > first.entry_id:  # compaction did
                replay.pop()
                self._out.acknowledged(first.offset, first.mask)
                return True
            self.reading.fetch(first.entry_id, replay.run_length(AHEAD_ENTRIES_MAX), self._budget())
            return False
        if len(entry.data) > COUNT_BYTES and not self._has_room(entry):
            return False
        replay.pop()
        mask = first.mask & ~self._cursor.mask(entry.offset, entry.count)
        self._offer(entry, mask & ~self._out.pending.mask(entry.entry_id))
        return True

    def _read_run(self, entries_max: int) -> int:
        """Deliver the next entries whole, as `_read_one` would each of them; returns how many. It ends before the first that is
        anything else than to be delivered at once."""
        reading, selection = self.reading, self._out.selection
        if reading.next_entry is None or self._throttles or self._subscription.compacted:
            return 0
        shared = selection.active is None
        run: list[Entry] = []
        count = 0
        for entry in reading.held_run(reading.next_entry, entries_max):
            if shared and entry.deliver_at:
                if not run:
                    return self._delay_run()
                break
            count += entry.count
            if count > RUN_MESSAGES_MAX or len(entry.data) > COUNT_BYTES:
                count -= entry.count
                break
            run.append(entry)
        if not run or self._cursor.mask(run[0].offset, count):
            return 0
        done = selection.deal_run(run, self._deliver_run)
        reading.next_entry += done
        return done

    def _delay_run(self) -> int:
        """Have the next entries wait for their delivery time, as `_read_one` would each of them; returns how many. It ends before
        the first that is to be delivered now, or was acknowledged."""
        reading, now = self.reading, self._topic.clock.now_ms()
        if reading.next_entry is None:
            return 0
        held = reading.held_run(reading.next_entry, RUN_ENTRIES_MAX)
        run = list(takewhile(lambda entry: entry.deliver_at > now, held))
        if run and (known := self._cursor.mask(run[0].offset, run[-1].end - run[0].offset)):
            end = run[0].offset + (known & -known).bit_length() - 1
            run = [entry for entry in run if entry.end <= end]
        if run:
            self._out.delays.add_run(run)
            reading.next_entry += len(run)
        return len(run)

    def _deliver_run(self, consumer: Receiver, run: Sequence[tuple[Entry, int, Hashes | None]]) -> None:
        """Deliver messages that were never delivered, of entries in their order."""
        subscription = self._subscription
        deliveries = [Delivery(subscription, entry, mask, 0) for entry, mask, _ in run]
        count = sum([mask.bit_count() for _, mask, _ in run])
        size = sum([len(entry.data) for entry, _, _ in run])
        if not consumer.options.auto_ack:
            parts = [
                Pending(entry.entry_id, entry.offset, entry.count, mask, consumer, hashes)
                for entry, mask, hashes in run
            ]
            self._out.give(parts, consumer)
        elif run[-1][0].end - run[0][0].offset == count:  # all of them, one after the other
            self._cursor.add(run[0][0].offset, (1 << count) - 1)
        else:
            for entry, mask, _ in run:
                self._cursor.add(entry.offset, mask)
        self._rate.add(count, size)
        consumer.deliver(deliveries, count, size)

    def _read_one(self) -> bool:
        """Deliver the next entry that was never read."""
        reading = self.reading
        if reading.next_entry is None:
            reading.locate(self._cursor.mark)
            return False
        if reading.next_entry >= self._topic.next_entry:
            return False
        entry = reading.held(reading.next_entry)
        if entry is None:
            if reading.next_entry < self._topic.first_entry:
                reading.next_entry = self._topic.first_entry
                return True
            if passed := reading.pass_gap():
                self._out.passed(passed.start, passed.stop)
                return True
            reading.fetch(reading.next_entry, budget=self._budget())
            return False
        if len(entry.data) > COUNT_BYTES and not self._has_room(entry):
            return False
        reading.next_entry += 1
        known = self._cursor.mask(entry.offset, entry.count)
        mask = ((1 << entry.count) - 1) & ~known
        if known:
            mask &= ~self._out.pending.mask(entry.entry_id)
            if not mask:
                gap = self._cursor.next_gap(entry.end)
                if gap - entry.end > SKIP_READS_MIN:
                    reading.locate(gap)
                    return False
        if mask and self._subscription.compacted and (kept := self._compaction.kept) is not None:
            seen = kept.mask(entry.offset, entry.count)
            self._out.acknowledged(entry.offset, mask & ~seen)
            mask &= seen
            if not mask and (following := kept.next(entry.end)) - entry.end > SKIP_READS_MIN:
                self._out.acknowledged(entry.end, (1 << (following - entry.end)) - 1)
                reading.locate(following)
                return False
        if mask:
            self._offer(entry, mask)
        return True

    # -- to whom

    def _budget(self) -> Budget | None:
        """The budget that a read counts in: that of a consumer with room, whose principal has room, too, if there is one."""
        consumers = self._out.selection.consumers
        ready = [c for c in consumers if c.capacity() > 0] or consumers
        for consumer in ready:
            if consumer.budget is None or not consumer.budget.over:
                return consumer.budget
        return ready[0].budget

    def _has_room(self, entry: Entry) -> bool:
        """Whether there is room for a large entry, which is waited for otherwise."""
        budget = self._budget()
        if budget is None or budget.has_room(len(entry.data)):
            return True
        budget.call_when_room(self.wake)
        return False

    def _offer(self, entry: Entry, mask: int) -> None:
        """Give the messages in `mask` to whose turn it is; what none can take is for the next run."""
        if not mask:
            return
        out = self._out
        # A delivery time is for consumers that share: if one gets everything, order has priority, as in Pulsar.
        shared = out.selection.active is None
        if entry.deliver_at and shared and entry.deliver_at > self._topic.clock.now_ms():
            out.delays.add(entry, mask)
            return
        rest = out.selection.deal(entry, mask, self._deliver)
        if rest:
            out.replay.add(Slice(entry.entry_id, entry.offset, entry.count, rest))

    def _deliver(self, consumer: Receiver, entry: Entry, mask: int, hashes: Hashes | None) -> None:
        if not consumer.options.auto_ack:
            part = Pending(entry.entry_id, entry.offset, entry.count, mask, consumer, hashes)
            self._out.give((part,), consumer)
        count, size = mask.bit_count(), len(entry.data)
        self._rate.add(count, size)
        for throttle in self._throttles:
            throttle.take(count, size)
        times = self._out.by_times(entry, mask)
        if len(times) > 1 and consumer.options.whole_entries:  # one frame, which has one number, as in Pulsar
            times = [(max(count for count, _ in times), mask)]
        if len(times) > 1 or times[0][0]:
            consumer.repeats()
        deliveries = [Delivery(self._subscription, entry, bits, again) for again, bits in times]
        consumer.deliver(deliveries, count, size * len(deliveries))
        if consumer.options.auto_ack:
            self._cursor.add(entry.offset, mask)
