"""Messages of one topic on their way to a dead-letter topic."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.policy import DeadLetter
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .outstanding import Outstanding, Place, Row
from .subscription import Subscription

AGAIN_MS: Final = 1000  # after a dead-letter topic did not take a message

Bury = Callable[[Subscription, Entry, int, DeadLetter, int], Awaitable[None]]


class Burying:
    """`bury` publishes a message; `buried` is called with its entry once that is durable."""

    def __init__(
        self,
        bury: Bury,
        source: Subscription,
        out: Outstanding,
        letter: DeadLetter | None,
        clock: Clock,
        tasks: Tasks,
        buried: Callable[[Place, Row], None],
    ) -> None:
        self._bury = bury
        self._source = source
        self._out = out
        self._letter = letter
        self._clock = clock
        self._tasks = tasks
        self._buried = buried
        self._epoch = 0  # a seek makes what was before mean nothing

    def bury(self, row: Row, entry: Entry, bits: int) -> None:
        """Move messages of an entry, which are not out any more."""
        self._begin(entry, bits, max(0, row.redeliveries), self._epoch)

    def forget(self) -> None:
        """What is not moved yet stays where it is."""
        self._epoch += 1

    def _begin(self, entry: Entry, bits: int, redeliveries: int, epoch: int) -> None:
        if epoch == self._epoch:
            self._tasks.spawn(
                self._bury_all(entry, bits, redeliveries, epoch), f"dead letters of {self._source.topic.name}"
            )

    async def _bury_all(self, entry: Entry, bits: int, redeliveries: int, epoch: int) -> None:
        letter = self._letter
        assert letter is not None
        for index in bits_of(bits):
            try:
                await self._bury(self._source, entry, index, letter, redeliveries)
            except PenstockError:
                left = bits >> index << index
                self._clock.call_later(AGAIN_MS, partial(self._begin, entry, left, redeliveries, epoch))
                return
            if epoch != self._epoch:
                return
            place = (entry.ledger, entry.entry_id)
            found = self._out.acknowledge_bits(place, 1 << index)
            if found is not None:
                self._buried(place, found[1])
