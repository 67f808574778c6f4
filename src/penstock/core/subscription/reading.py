"""Where a subscription reads on, and the entries it has at hand."""

from collections.abc import Callable
from typing import Final

from penstock.core.tasks import Tasks
from penstock.core.topic import READ_BYTES, Topic
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError

AHEAD_ENTRIES_MAX: Final = 500  # entries fetched from the store at once
RETRY_MS: Final = 1000  # after the store failed


class Reading:
    """The next entry that was never read, and entries fetched ahead; `wake` is called when some came.

    One fetch runs at a time; while it does, the subscription waits (`busy`).
    """

    def __init__(self, topic: Topic, tasks: Tasks, wake: Callable[[], None]) -> None:
        self.next_entry: int | None = None  # None: to be found by `locate`
        self.busy = False
        self._topic = topic
        self._tasks = tasks
        self._wake = wake
        self._ahead: list[Entry] = []
        self._epoch = 0

    def restart(self) -> None:
        """Forget the position: the cursor moved."""
        self._epoch += 1
        self.next_entry = None
        self._ahead = []

    def held(self, entry_id: int) -> Entry | None:
        """An entry that is in memory: the topic's tail, or what was read ahead."""
        entry = self._topic.peek(entry_id)
        if entry is not None or not self._ahead:
            return entry
        at = entry_id - self._ahead[0].entry_id
        return self._ahead[at] if 0 <= at < len(self._ahead) else None

    def fetch(self, entry_id: int, entries_max: int = AHEAD_ENTRIES_MAX) -> None:
        """Have entries from `entry_id` on brought into memory."""
        self.busy = True
        self._tasks.spawn(self._fetch(entry_id, entries_max), f"read {self._topic.name}")

    async def _fetch(self, entry_id: int, entries_max: int) -> None:
        try:
            self._ahead = await self._topic.read(entry_id, entries_max, READ_BYTES)
        except PenstockError:
            self._topic.clock.call_later(RETRY_MS, self._wake)
            return
        finally:
            self.busy = False
        if self._ahead:
            self._wake()

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
        except PenstockError:
            self._topic.clock.call_later(RETRY_MS, self._wake)
            return
        finally:
            self.busy = False
        self._wake()
