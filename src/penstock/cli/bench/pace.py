"""When each message is to be sent, and what became of it.

With a rate the times are fixed before the run: a message that a slow server holds up is late, and so is each after it.
Its latency counts from when it was to be sent, so that a pause of the server shows in all messages that would have been sent
during it (what is left out otherwise is called coordinated omission).
"""

import asyncio
import signal
import time
from typing import Final, NamedTuple

from penstock.cli.progress import Progress

from .latencies import Latencies

GRACE_S: Final = 1.0  # after the end of a run with a rate: for messages whose time came just before it


class Bounds(NamedTuple):
    """Of a run: the first that is reached ends it. `warm_s` of its beginning are not counted."""

    duration_s: float | None = None
    messages: int | None = None
    rate: float | None = None
    warm_s: float = 0.0


class Pace:
    """One run: hands out the times at which messages are to be sent, and counts what came of them.

    What stops the run that it is a part of stops it, too.
    """

    def __init__(self, bounds: Bounds, progress: Progress, part_of: "Pace | None" = None) -> None:
        self._bounds = bounds
        self._progress = progress
        self._whole = part_of
        self.stopped = False
        self.signal: int = signal.SIGINT  # that stopped it
        self._taken = 0
        self.latencies = Latencies()
        self.lateness = Latencies()
        self.count = 0
        self.errors = 0
        self.error = ""
        self.cpu_share = 0.0
        self.begin()

    def begin(self) -> None:
        """All is ready: the run begins now."""
        self.begin_s = time.perf_counter()
        self._counted_from_s = self.begin_s + self._bounds.warm_s
        self._last_s = self._counted_from_s
        self._cpu_s = time.process_time()

    def finish(self) -> None:
        """The run is over; what follows is not its work."""
        taken_s = time.perf_counter() - self.begin_s
        self.cpu_share = (time.process_time() - self._cpu_s) / max(1e-9, taken_s)

    @property
    def taken(self) -> int:
        """Messages whose sending was begun."""
        return self._taken

    def stop(self, number: int = signal.SIGINT) -> None:
        """Send nothing more, for a signal."""
        self.stopped = True
        self.signal = number

    @property
    def over(self) -> bool:
        """Whether nothing more is to be sent."""
        bounds = self._bounds
        if self._whole is not None and self._whole.stopped:
            return True
        if self.stopped or (bounds.messages is not None and self._taken >= bounds.messages):
            return True
        if bounds.duration_s is None:
            return False
        grace_s = GRACE_S if bounds.rate else 0.0
        return time.perf_counter() >= self.begin_s + bounds.duration_s + grace_s

    async def next(self) -> float | None:
        """Wait until a message is to be sent, and take it; its time, in s, or None when there are no more."""
        if self.over:
            return None
        bounds = self._bounds
        if not bounds.rate:
            self._taken += 1
            return time.perf_counter()
        due_s = self.begin_s + self._taken / bounds.rate
        if bounds.duration_s is not None and due_s >= self.begin_s + bounds.duration_s:
            return None
        self._taken += 1
        if (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        return due_s

    def sending(self, due_s: float) -> None:
        """A message that was due then is sent now."""
        if self._bounds.rate and due_s >= self._counted_from_s:
            self.lateness.record(int((time.perf_counter() - due_s) * 1e6))

    def done(self, due_s: float) -> None:
        """What became of a message that was due then is known now."""
        if due_s >= self._counted_from_s:
            self.latencies.record(int((time.perf_counter() - due_s) * 1e6))
            self.count += 1
            self._last_s = time.perf_counter()
        self._progress.add(1)

    def arrived(self, due_s: float) -> None:
        """A message came that waited on the server: it counts, and how long it waited does not."""
        self.count += 1
        self._last_s = time.perf_counter()
        self._progress.add(1)

    def failed(self, error: object) -> None:
        """A message came to nothing."""
        self.errors += 1
        self.error = self.error or (str(error) or type(error).__name__)

    @property
    def unsent(self) -> int:
        """Messages whose time came before the end and that could not be sent."""
        bounds = self._bounds
        if self.stopped or not bounds.rate or bounds.duration_s is None:
            return 0
        due = int(bounds.duration_s * bounds.rate)
        return max(0, min(due, bounds.messages or due) - self._taken)

    @property
    def seconds(self) -> float:
        """From when messages count until the last of them was done."""
        return self._last_s - self._counted_from_s
