"""The read position of a subscription, and the entries it has in memory."""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.delivery import Budget
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks

from .receiver import SubscribedLog
from .store import READ_BYTES

AHEAD_ENTRIES_MAX: Final = 500  # entries fetched from the store at once
RETRY_MS: Final = 1000  # after the store failed
# An unreachable cluster and a deleted topic are reported by the code that notices.
_KNOWN: Final = frozenset((ErrorKind.UNAVAILABLE, ErrorKind.REQUEST_TIMEOUT, ErrorKind.TOPIC_NOT_FOUND))


class ReadFailures:
    """Reports that a log cannot be read for a subscription (`subject`), and that it can be read again."""

    def __init__(self, failures: Failures, subject: str) -> None:
        self._failures = failures
        self._subject = subject
        self._ongoing = False

    def failed(self, error: PenstockError) -> None:
        """A read failed."""
        if error.kind not in _KNOWN:
            self._ongoing = True
            self._failures.failed(FailureKind.READ, self._subject, error.message)

    def recovered(self) -> None:
        """A read worked."""
        if self._ongoing:
            self._ongoing = False
            self._failures.recovered(FailureKind.READ, self._subject)

    def dropped(self) -> None:
        """Nothing is left to read."""
        if self._ongoing:
            self._ongoing = False
            self._failures.dropped(FailureKind.READ, self._subject)


async def last_entry(topic: SubscribedLog) -> Entry | None:
    """The last entry of a log; ids at its end may be of none."""
    back = 1
    while True:
        start = at = max(topic.first_entry, topic.next_entry - back)
        found: Entry | None = None
        while at < topic.next_entry:
            some = await topic.read(at, AHEAD_ENTRIES_MAX, READ_BYTES)
            if some:
                found = some[-1]
                at = found.entry_id + 1
            elif topic.gap_end(at) > at:
                at = topic.gap_end(at)
            else:
                break
        if found is not None or start <= topic.first_entry:
            return found
        back *= 16


class Reading:
    """The next entry that was never read, and entries fetched ahead; `wake` is called when some came.

    One fetch runs at a time; while it does, the subscription waits (`busy`). What it brings counts in the budget
    of the consumer that it is for, until it was delivered.
    """

    def __init__(
        self, topic: SubscribedLog, tasks: Tasks, wake: Callable[[], None], failures: ReadFailures
    ) -> None:
        self.next_entry: int | None = None  # None: to be found by `locate`
        self.busy = False
        self._topic = topic
        self._tasks = tasks
        self._wake = wake
        self._failures = failures
        self._ahead: list[Entry] = []
        self._ahead_bytes = 0
        self._budget: Budget | None = None  # that counts them
        self._epoch = 0

    def restart(self) -> None:
        """Forget the position: the cursor moved, or another process has the log."""
        self.close()
        self._epoch += 1
        self.next_entry = None
        self.drop_ahead()

    def drop_ahead(self) -> None:
        """Forget the entries that were fetched ahead."""
        if self._ahead:
            self._ahead = []
            if self._budget is not None:
                self._budget.send(-self._ahead_bytes)
                self._budget = None

    def drop_passed(self) -> None:
        """The same, if all of them were delivered."""
        if self._ahead and self.next_entry is not None and self.next_entry > self._ahead[-1].entry_id:
            self.drop_ahead()

    def held(self, entry_id: int) -> Entry | None:
        """An entry in memory: of the topic's tail, or read ahead."""
        entry = self._topic.peek(entry_id)
        if entry is not None or not self._ahead:
            return entry
        at = entry_id - self._ahead[0].entry_id
        return self._ahead[at] if 0 <= at < len(self._ahead) else None

    def held_run(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        """Entries from `entry_id` on that are in memory, up to `entries_max`."""
        found = self._topic.peek_all(entry_id, entries_max)
        if found or not self._ahead:
            return found
        at = entry_id - self._ahead[0].entry_id
        return self._ahead[at : at + entries_max] if at >= 0 else ()

    def pass_gap(self) -> range:
        """Skip ids that no entry has, if a gap comes next; returns them."""
        start = self.next_entry
        if start is None:
            return range(0)
        self.next_entry = max(start, self._topic.gap_end(start))
        return range(start, self.next_entry)

    def upcoming(self, messages_max: int) -> Sequence[Entry]:
        """The next entries as far as they are in memory, up to so many messages."""
        found: list[Entry] = []
        if self.next_entry is not None and messages_max > 0:
            for entry in self.held_run(self.next_entry, messages_max):
                messages_max -= entry.count
                if messages_max < 0:
                    break
                found.append(entry)
        return found

    def fetch(
        self, entry_id: int, entries_max: int = AHEAD_ENTRIES_MAX, budget: Budget | None = None
    ) -> None:
        """Have entries from `entry_id` on brought into memory; later, if `budget` has no room for them."""
        self.drop_ahead()
        reserved = self._topic.read_bytes_max
        if budget is not None and not budget.reserve(reserved):
            budget.call_when_room(self._wake)
            return
        self.busy = True
        self._tasks.spawn(self._fetch(entry_id, entries_max, reserved, budget), f"read {self._topic.name}")

    async def _fetch(self, entry_id: int, entries_max: int, reserved: int, budget: Budget | None) -> None:
        size = 0
        try:
            self._ahead = await self._topic.read(entry_id, entries_max, READ_BYTES)
            self._ahead_bytes = size = sum([len(entry.data) for entry in self._ahead])
            self._topic.has_read(size)
            self._failures.recovered()
        except PenstockError as error:
            self._fail(error)
            return
        finally:
            self.busy = False
            if budget is not None:
                budget.send(size - reserved)
                self._budget = budget if self._ahead else None
        if self._ahead or self._topic.gap_end(entry_id) > entry_id:
            self._wake()
        elif entry_id < self._topic.next_entry:
            self._topic.clock.call_later(RETRY_MS, self._wake)

    def locate(self, offset: int) -> None:
        """Have the entry that holds `offset` found: reading goes on with it."""
        self.busy = True
        self.next_entry = None
        self._tasks.spawn(self._locate(offset, self._epoch), f"locate {self._topic.name}")

    async def _locate(self, offset: int, epoch: int) -> None:
        try:
            found = await self._topic.entry_at(offset)
            if epoch == self._epoch:
                self.next_entry = found
            self._failures.recovered()
        except PenstockError as error:
            self._fail(error)
            return
        finally:
            self.busy = False
        self._wake()

    def _fail(self, error: PenstockError) -> None:
        """A read failed: the next run tries again."""
        self._failures.failed(error)
        self._topic.clock.call_later(RETRY_MS, self._wake)

    def close(self) -> None:
        """Nothing is read, so that nothing fails."""
        self._failures.dropped()
