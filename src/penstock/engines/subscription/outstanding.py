"""Messages that were read and are not acknowledged: with consumers, or to be redelivered, now or later.

A message that came back too often goes to the dead-letter topic instead.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from penstock.broker.delivery import Budget
from penstock.engines.shared.dead_letters import DeadLetterQueue, EntryDeadLetters
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.policy import DeadLetter
from penstock.runtime.clock import Timers
from penstock.runtime.tasks import Tasks

from .delayed import DelayedMessages
from .offsets import OffsetSet
from .pending import Pending, PendingTable, Replay, Slice
from .reading import ReadFailures
from .receiver import Receiver, Source, SubscribedLog
from .selection import Selection

WAITING_MAX: Final = 50_000  # messages given back with a delay before nothing more is read; bounds memory


class Outstanding:
    """`pending` is with consumers, `replay` is to be redelivered; `selection` chooses the receivers.

    `moved` is called when the cursor changed, `wake` when there is something to deliver; `bury` publishes a message
    to the dead-letter topic.
    """

    def __init__(
        self,
        topic: SubscribedLog,
        cursor: OffsetSet,
        tasks: Tasks,
        selection: Selection,
        letters: DeadLetterQueue,
        delayed_reads: ReadFailures,
        *,
        wake: Callable[[], None],
        moved: Callable[[], None],
        bury: Callable[[Entry, int, DeadLetter, int], Awaitable[None]],
    ) -> None:
        self.selection = selection
        self.pending = PendingTable()
        self.replay = Replay()
        self.delays = DelayedMessages(topic, cursor, tasks, wake, delayed_reads)
        self.redelivered = 0  # messages that came back, ever
        self._topic = topic
        self._cursor = cursor
        self._letters = letters
        self._wake = wake
        self._moved = moved
        self._bury = bury
        self._times: dict[int, int] = {}  # how often, by offset, of messages that came back
        self._timers = Timers(topic.clock, _wanted)
        self._waiting = 0  # messages that were given back and wait
        self._epoch = 0  # a seek invalidates earlier epochs

    # -- out

    def give(self, parts: Sequence[Pending], consumer: Receiver) -> None:
        """A consumer is about to get these messages and has to answer them."""
        timeout = consumer.options.ack_timeout_ms
        if not timeout:
            self.pending.add(parts)
            return
        due = self._topic.clock.monotonic_ms() + timeout
        self.pending.add(parts)
        for part in parts:
            self._timers.at(due, self._timed_out, part)

    def _timed_out(self, part: Pending) -> None:
        if part.mask:
            self.take_back(part, part.mask, counts=True)
            self._wake()

    def settle(self, part: Pending, mask: int) -> None:
        """These messages are settled: their consumer has room again, and messages that waited for their keys may go."""
        self.release(part, mask)
        part.consumer.settled(mask.bit_count())

    def release(self, part: Pending, mask: int) -> None:
        """`settle`; the caller notifies the consumer."""
        self.pending.release(part, mask)
        if part.hashes is not None and (freed := self.selection.settled(part, mask)):
            self.again(freed)
            self._wake()

    def by_times(self, entry: Entry, mask: int) -> list[tuple[int, int]]:
        """Messages by how often they came back: `(times, mask)`, in the order of the log."""
        if not self._times:
            return [(0, mask)]
        counts: dict[int, int] = {}
        for index in bits_of(mask):
            times = self._times.get(entry.offset + index, 0)
            counts[times] = counts.get(times, 0) | 1 << index
        return sorted(counts.items(), key=lambda item: item[1] & -item[1])

    # -- acknowledged

    def acknowledged(self, offset: int, mask: int) -> None:
        """Count messages as done: bit i of `mask` is the one at `offset + i`."""
        new = self._cursor.add(offset, mask)
        if new:
            if self._times:
                full = self.full
                for index in bits_of(new):
                    self._times.pop(offset + index, None)
                if full and not self.full:
                    self._wake()
            self._moved()

    def passed(self, start: int, end: int) -> None:
        """Count offsets as done that no message has."""
        self._cursor.add_range(start, end)
        self._moved()

    def acknowledged_below(self, end: int) -> None:
        """Count everything below the offset `end` as done."""
        for part in self.pending.all():
            if part.offset < end:
                self.settle(part, part.mask & ((1 << max(0, end - part.offset)) - 1))
        for offset in [o for o in self._times if o < end]:
            del self._times[offset]
        self._cursor.raise_mark(end)
        self.delays.drop_below(end)
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
            self._count(again, part.consumer.options.dead_letter)
        if not again.mask:
            return
        if delay_ms > 0:
            self.later(again, delay_ms)
        else:
            self.replay.add(again)

    def take_all_back(self, consumer: Receiver, subscription: Source) -> None:
        """Redeliver everything a consumer has; messages it never took do not count as tried."""
        untouched: dict[int, int] = {}
        for delivery in consumer.outbox:
            if delivery.subscription is subscription:
                entry_id = delivery.entry.entry_id
                untouched[entry_id] = untouched.get(entry_id, 0) | delivery.mask
        consumer.forget(subscription)
        for part in self.pending.with_consumer(consumer):
            self.take_back(part, untouched.get(part.entry_id, 0), counts=False)
            self.take_back(part, part.mask, counts=True)

    def again(self, parts: Iterable[Slice]) -> None:
        """Deliver these as soon as a consumer has room."""
        for part in parts:
            self.replay.add(part)

    @property
    def delayed(self) -> int:
        """Messages that wait for their time."""
        return self.delays.messages + self._waiting

    @property
    def full(self) -> bool:
        """Whether so many returned messages wait that reading must pause."""
        return self._waiting >= WAITING_MAX and len(self._times) >= WAITING_MAX

    def deliver_due(self, budget: Budget | None) -> Slice | None:
        """Deliver delayed messages whose time has come; returns the first of them."""
        self.again(self.delays.release(budget))
        return self.replay.first()

    def later(self, part: Slice, wait_ms: int) -> None:
        """Deliver these again after `wait_ms`."""
        self._waiting += part.mask.bit_count()
        due = self._topic.clock.monotonic_ms() + wait_ms
        self._timers.at(due, self._due, (self._epoch, part))

    def _due(self, waiting: tuple[int, Slice]) -> None:
        epoch, part = waiting
        if epoch == self._epoch:
            self._waiting -= part.mask.bit_count()
            self.replay.add(part)
            self._wake()

    def _count(self, part: Slice, letter: DeadLetter | None) -> None:
        """These messages came back: remove from `part` those that are buried now."""
        self.redelivered += part.mask.bit_count()
        dead = 0
        for index in bits_of(part.mask):
            offset = part.offset + index
            times = self._times.get(offset, 0) + 1
            if letter is not None and times > letter.redeliveries_max:
                dead |= 1 << index
            else:
                self._times[offset] = times
        if dead and letter is not None:
            part.mask &= ~dead
            self._letters.add(
                self._dead(Slice(part.entry_id, part.offset, part.count, dead), letter, self._epoch)
            )

    def _dead(self, dead: Slice, letter: DeadLetter, epoch: int) -> EntryDeadLetters:
        """Messages on their way to the dead-letter topic; each is acknowledged once it is durable there."""
        offset, cursor = dead.offset, self._cursor

        async def load() -> Entry:
            return await self._topic.entry(dead.entry_id)

        async def bury(entry: Entry, index: int) -> None:
            if not cursor.mask(offset + index, 1):
                await self._bury(entry, index, letter, self._times.get(offset + index, 0))
            if epoch == self._epoch:  # dead letters from before a seek are delivered again after it
                self.acknowledged(offset, 1 << index)

        def again(part: EntryDeadLetters, wait_ms: int) -> None:
            self.later(Slice(dead.entry_id, offset, dead.count, part.mask), wait_ms)

        return EntryDeadLetters(deque(bits_of(dead.mask)), load, bury, again)

    # -- the whole

    def forget(self) -> None:
        """The cursor moves: nothing of before is out, waits or comes back."""
        self.selection.forget()
        for part in self.pending.all():
            count = part.mask.bit_count()
            part.mask = 0  # its timer finds nothing
            part.consumer.settled(count)
        self.pending.clear()
        self._epoch += 1
        self._letters.forget()
        self.replay.clear()
        self._times.clear()
        self._timers.close()
        self._waiting = 0
        self.delays.clear()

    def close(self) -> None:
        self._timers.close()
        self._letters.forget()
        self.delays.clear()


def _wanted(argument: object) -> bool:
    """Whether a deadline still means something: an acknowledgement timeout does until all of it is settled."""
    return not isinstance(argument, Pending) or argument.mask != 0
