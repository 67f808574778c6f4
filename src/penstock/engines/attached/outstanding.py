"""The entries of one topic or partition that one consumer has: those that arrived and are not wholly acknowledged.

The cluster delivers and acknowledges whole entries (parts of them only if it keeps acknowledgements within batches), and
an entry may be redelivered of which some messages are done, with the client, or due later. The state of each message
here decides which of them are delivered.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from penstock.client.entries.arrived import Place
from penstock.engines.shared.dead_letters import DeadLetterQueue, EntryDeadLetters
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.policy import DeadLetter
from penstock.runtime.clock import Clock, Timers
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .subscription import Subscription

REMEMBERED_MAX: Final = 10_000  # entries of which nothing is out: they may have gone to other consumers
Bury = Callable[[Subscription, Entry, int, DeadLetter, int], Awaitable[None]]


class Row(msgspec.Struct, gc=False):
    """An entry. Of its messages, as bits: `out` are with the client or on their way to it, `acked` are done, `later`
    are redelivered when they are due; the others may come at any time. `coming`: the cluster was asked for it, or
    redelivers all of it on a new connection, so that it may be on its way here even when all of it is done."""

    count: int
    out: int = 0
    acked: int = 0
    later: int = 0
    coming: bool = False
    redeliveries: int = 0
    tokens: tuple[
        int, ...
    ] = ()  # the delivered entries, by identity: one from before a seek is not among them
    entry: Entry | None = None  # if its next refusal is the last

    @property
    def all(self) -> int:
        return (1 << self.count) - 1

    @property
    def left(self) -> int:
        """The messages that are not acknowledged."""
        return self.all & ~self.acked


class Outstanding:
    """`counts_here`: the cluster does not count redeliveries of this type of subscription."""

    def __init__(self, *, counts_here: bool) -> None:
        self._rows: dict[Place, Row] = {}
        self._idle: dict[Place, None] = {}
        self._counts_here = counts_here
        self.out = 0  # messages

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, place: Place) -> Row | None:
        return self._rows.get(place)

    def arrived(self, entry: Entry, mask: int, redeliveries: int) -> tuple[Row, int]:
        """An entry came with the messages in `mask`; returns those to deliver, which count as outstanding.

        If nothing is `left` of the row, it was acknowledged in transit: the cluster needs the acknowledgement again.
        """
        place = (entry.ledger, entry.entry_id)
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = Row(entry.count)
            again = False
        else:
            self._idle.pop(place, None)
            again = True
        row.coming = False
        row.acked |= row.all & ~mask
        wanted = mask & ~(row.acked | row.out | row.later)
        if self._counts_here:
            row.redeliveries += again and wanted != 0
        else:
            row.redeliveries = max(row.redeliveries, redeliveries)
        if wanted:
            row.out |= wanted
            row.tokens = (*row.tokens[-7:], id(entry))
            self.out += wanted.bit_count()
        self._settle(place, row)
        return row, wanted

    def acknowledge(self, place: Place, index: int) -> tuple[int, Row] | None:
        """A message is done, all of the entry for -1. Returns the outstanding messages, and the row; None if
        the entry or the message is unknown."""
        row = self._rows.get(place)
        if row is None or index >= row.count or not row.left:
            return None
        return self._done(place, row, row.all if index < 0 else 1 << index), row

    def acknowledge_bits(self, place: Place, bits: int) -> tuple[int, Row] | None:
        """The same for several messages."""
        row = self._rows.get(place)
        return None if row is None else (self._done(place, row, bits & row.all), row)

    def _done(self, place: Place, row: Row, bits: int) -> int:
        """Returns those that were out."""
        was_out = row.out & bits
        row.out &= ~bits
        row.later &= ~bits
        row.acked |= bits
        self.out -= was_out.bit_count()
        self._settle(place, row)
        return was_out

    def acknowledge_before(self, place: Place) -> int:
        """All entries before `place` are done; returns how many messages of them were out."""
        passed = [(one, row) for one, row in self._rows.items() if one < place]
        return sum([self._done(one, row, row.all).bit_count() for one, row in passed])

    def previous(self, place: Place) -> Place | None:
        """The entry before `place`, as far as it is known."""
        if place[1] > 0:
            return place[0], place[1] - 1
        return max((one for one in self._rows if one < place), default=None)

    def take_back(self, place: Place, bits: int, *, later: bool, tried: bool = True) -> int:
        """Outstanding messages are no longer with the client: they are redelivered, `later`: at `due`.
        Messages never `tried` do not count. Returns the outstanding ones."""
        row = self._rows.get(place)
        if row is None:
            return 0
        bits &= row.out
        row.out &= ~bits
        if later:
            row.later |= bits
        self.out -= bits.bit_count()
        if not tried and self._counts_here and not row.out:
            row.redeliveries -= 1  # which its coming again counts
        self._settle(place, row)
        return bits

    def take_back_all(self) -> tuple[list[Place], int]:
        """The same for all messages that are out: they are asked for again. Returns their entries, and how many messages they are."""
        places = [place for place, row in self._rows.items() if row.out]
        count, self.out = self.out, 0
        for place in places:
            row = self._rows[place]
            row.out, row.coming = 0, True
            self._settle(place, row)
        return places, count

    def due(self, asked: Mapping[Place, int]) -> list[Place]:
        """The delay of messages is over; returns the entries that the caller must request."""
        found: list[Place] = []
        for place, bits in asked.items():
            row = self._rows.get(place)
            if row is not None and row.later & bits:
                row.later &= ~bits
                row.coming = True
                found.append(place)
                self._settle(place, row)
        return found

    def all_coming(self) -> None:
        """The cluster gives everything again."""
        for row in self._rows.values():
            row.coming = True

    def is_out(self, entry: Entry, mask: int) -> int:
        """Which messages of a delivery are still out as it was delivered."""
        row = self._rows.get((entry.ledger, entry.entry_id))
        return 0 if row is None or id(entry) not in row.tokens else row.out & mask

    def forget(self) -> int:
        """Forget all earlier entries (a seek); returns how many messages were out."""
        count, self.out = self.out, 0
        for row in self._rows.values():
            row.out = row.later = 0
        self._rows.clear()
        self._idle.clear()
        return count

    def places(self) -> Iterable[Place]:
        return self._rows.keys()

    def _settle(self, place: Place, row: Row) -> None:
        """Forget what need not be known: all of it is done, or it is as if it had never come."""
        if row.out or row.later:
            self._idle.pop(place, None)
        elif row.coming or (row.left and (row.acked or self._counts_here)):
            self._idle[place] = None
            if len(self._idle) > REMEMBERED_MAX:
                oldest = next(iter(self._idle))
                del self._idle[oldest]
                self._rows.pop(oldest, None)
        else:
            self._rows.pop(place, None)
            self._idle.pop(place, None)


class Redelivery:
    """Deadlines of one consumer's messages of one topic. `ask` is called with the entries that are due, those of one
    moment together; `late` with messages that were not acknowledged in time."""

    def __init__(
        self,
        clock: Clock,
        out: Outstanding,
        ask: Callable[[list[Place]], None],
        late: Callable[[Place, int], None],
    ) -> None:
        self._clock = clock
        self._out = out
        self._ask = ask
        self._late = late
        self._timers = Timers(clock, _wanted)
        self._due: dict[Place, int] = {}

    def later(self, place: Place, bits: int, delay_ms: int) -> None:
        """Redeliver these messages after a delay."""
        if delay_ms <= 0:
            self._came((place, bits))
        else:
            self._timers.at(self._clock.monotonic_ms() + delay_ms, self._came, (place, bits))

    def watch(self, place: Place, row: Row, bits: int, timeout_ms: int) -> None:
        """The client has to acknowledge these messages in time."""
        self._timers.at(self._clock.monotonic_ms() + timeout_ms, self._over, (place, row, bits))

    def _came(self, what: tuple[Place, int]) -> None:
        place, bits = what
        if not self._due:
            asyncio.get_running_loop().call_soon(self._ask_all)
        self._due[place] = self._due.get(place, 0) | bits

    def _ask_all(self) -> None:
        due, self._due = self._due, {}
        places = self._out.due(due)
        if places:
            self._ask(places)

    def _over(self, what: tuple[Place, Row, int]) -> None:
        place, row, bits = what
        if row.out & bits and self._out.row(place) is row:
            self._late(place, row.out & bits)

    def forget(self) -> None:
        """A seek: no earlier message is redelivered."""
        self._timers.close()
        self._due.clear()

    close = forget


def _wanted(what: object) -> bool:
    """Whether a deadline is still valid."""
    return not (isinstance(what, tuple) and len(what) == 3 and not what[1].out & what[2])


class Burying:
    """`bury` publishes a message; `buried` is called with its entry once it is durable, `again` with messages to
    redeliver and the delay (ms)."""

    def __init__(
        self,
        bury: Bury,
        source: Subscription,
        out: Outstanding,
        letter: DeadLetter | None,
        clock: Clock,
        tasks: Tasks,
        failures: Failures,
        *,
        buried: Callable[[Place, Row], None],
        again: Callable[[Place, int, int], None],
    ) -> None:
        self._bury = bury
        self._source = source
        self._out = out
        self._letter = letter
        self._buried = buried
        self._again = again
        self._epoch = 0  # a seek makes earlier messages irrelevant
        subject = f"{source.topic.name} {source.name}"
        self._queue = DeadLetterQueue(source.dead_letters, subject, failures, clock, tasks)

    def bury(self, row: Row, entry: Entry, bits: int) -> None:
        """Move messages of an entry, which are not out any more."""
        letter = self._letter
        assert letter is not None
        place, redeliveries, epoch = (entry.ledger, entry.entry_id), max(0, row.redeliveries), self._epoch

        async def load() -> Entry:
            return entry

        async def bury(entry: Entry, index: int) -> None:
            known = self._out.row(place)
            if known is not None and known.left >> index & 1:  # else it was acknowledged
                await self._bury(self._source, entry, index, letter, redeliveries)
            if epoch == self._epoch:
                found = self._out.acknowledge_bits(place, 1 << index)
                if found is not None:
                    self._buried(place, found[1])

        def again(part: EntryDeadLetters, wait_ms: int) -> None:
            self._again(place, part.mask, wait_ms)

        self._queue.add(EntryDeadLetters(deque(bits_of(bits)), load, bury, again, len(entry.data)))

    def forget(self) -> None:
        """Messages that were not moved yet stay in their topic."""
        self._epoch += 1
        self._queue.forget()
