"""What comes back: how often, after which delay, and when a message becomes a dead letter."""

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import DeadLetter
from penstock.runtime.clock import Timers
from penstock.runtime.tasks import Tasks

from .pending import Pending
from .replay import Replay, Slice
from .source import SubscribedLog

BURY_RETRY_MS: Final = 1000  # after a dead-letter topic did not take a message


class Redelivery:
    """Slices to be delivered again: now (`replay`), at their time, or to the dead-letter topic instead.

    `buried` is called with what is durable among the dead letters, `wake` when something became due.
    """

    def __init__(
        self,
        topic: SubscribedLog,
        tasks: Tasks,
        *,
        wake: Callable[[], None],
        bury: Callable[[Entry, int, DeadLetter, int], Awaitable[None]],
        buried: Callable[[int, int], None],
        left: Callable[[Slice], int],
    ) -> None:
        self.replay = Replay()
        self.delayed = 0  # messages that wait for their time
        self.total = 0  # messages that came back, ever
        self._topic = topic
        self._tasks = tasks
        self._wake = wake
        self._bury = bury
        self._buried = buried
        self._left = left
        self._times: dict[int, int] = {}  # by offset, only of messages that came back
        self._timers = Timers(topic.clock, _wanted)
        self._epoch = 0  # a seek makes what was before mean nothing

    def count(self, part: Slice, letter: DeadLetter | None) -> None:
        """These messages were out and were not acknowledged: remove from `part` those that are buried now."""
        self.total += part.mask.bit_count()
        dead = 0
        for index in bits_of(part.mask):
            offset = part.offset + index
            times = self._times.get(offset, 0) + 1
            if letter is not None and times > letter.redeliveries_max:
                dead |= 1 << index
            else:
                self._times[offset] = times
        if dead and letter is not None:
            buried = Slice(part.entry_id, part.offset, part.count, dead)
            self._tasks.spawn(
                self._bury_all(buried, letter, self._epoch), f"dead letters of {self._topic.name}"
            )
            part.mask &= ~dead

    async def _bury_all(self, dead: Slice, letter: DeadLetter, epoch: int) -> None:
        """Move messages to the dead-letter topic; acknowledged here once they are durable there."""
        try:
            entry = await self._topic.entry(dead.entry_id)
            for index in bits_of(dead.mask):
                times = self._times.get(dead.offset + index, 0)
                await self._bury(entry, index, letter, times)
                self._buried(dead.offset, 1 << index)
        except PenstockError as error:
            if error.kind is ErrorKind.MESSAGE_NOT_FOUND or epoch != self._epoch:
                return
            self.later(Slice(dead.entry_id, dead.offset, dead.count, self._left(dead)), BURY_RETRY_MS)

    def again(self, parts: list[Slice]) -> None:
        """Deliver these as soon as somebody has room."""
        for part in parts:
            self.replay.add(part)

    def later(self, part: Slice, wait_ms: float) -> None:
        """Deliver these after `wait_ms`."""
        self.delayed += part.mask.bit_count()
        due = self._topic.clock.monotonic_ms() + max(1, int(wait_ms))
        self._timers.at(due, self._due, (self._epoch, part))

    def _due(self, waiting: tuple[int, Slice]) -> None:
        epoch, part = waiting
        if epoch == self._epoch:
            self.delayed -= part.mask.bit_count()
            self.replay.add(part)
            self._wake()

    def watch(self, part: Pending, timeout_ms: int, timed_out: Callable[[Pending], None]) -> None:
        """Call `timed_out(part)` after the acknowledgement timeout, whatever became of it."""
        self._timers.at(self._topic.clock.monotonic_ms() + timeout_ms, timed_out, part)

    def by_times(self, entry: Entry, mask: int) -> list[tuple[int, int]]:
        """Messages by how often they came back: `(times, mask)`, in the order of the log."""
        if not self._times:
            return [(0, mask)]
        counts: dict[int, int] = {}
        for index in bits_of(mask):
            times = self._times.get(entry.offset + index, 0)
            counts[times] = counts.get(times, 0) | 1 << index
        return sorted(counts.items(), key=lambda item: item[1] & -item[1])

    def acknowledged(self, offset: int, mask: int) -> None:
        """These need no counting any more."""
        if self._times:
            for index in bits_of(mask):
                self._times.pop(offset + index, None)

    def acknowledged_below(self, end: int) -> None:
        """Nothing below `end` needs counting any more."""
        for offset in [o for o in self._times if o < end]:
            del self._times[offset]

    def forget(self) -> None:
        """The cursor moved: nothing of before comes back."""
        self._epoch += 1
        self.replay.clear()
        self._times.clear()
        self._timers.close()
        self.delayed = 0

    def close(self) -> None:
        self._timers.close()


def _wanted(argument: object) -> bool:
    """Whether a deadline still means something: an acknowledgement timeout does until all of it is settled."""
    return not isinstance(argument, Pending) or argument.mask != 0
