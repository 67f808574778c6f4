"""Messages of one topic on their way to a dead-letter topic."""

from collections import deque
from collections.abc import Awaitable, Callable

from penstock.client.entries.arrived import Place
from penstock.engines.shared.dead_letter_queue import DeadLetterQueue, EntryDeadLetters
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.policy import DeadLetter
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .outstanding import Outstanding, Row
from .subscription import Subscription

Bury = Callable[[Subscription, Entry, int, DeadLetter, int], Awaitable[None]]


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
