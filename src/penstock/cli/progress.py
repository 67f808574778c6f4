"""Progress of long commands: a count and a rate on stderr, if it is a terminal."""

import os
import stat
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

AFTER_S: Final = 1.0  # what takes no longer shows nothing
EACH_S: Final = 0.1  # between two updates of the display, which cost more than counting


def watched(*, silent_output: bool) -> bool:
    """Whether to show progress: stderr is a terminal, and stdout goes to it or to a file; another program in a pipe may
    write to the same terminal. `silent_output` is False if stdout shows more than a last sentence."""
    if not sys.stderr.isatty():
        return False
    if sys.stdout.isatty():
        return silent_output
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except OSError:
        return False


class Progress:
    """Counts messages; to be used as a context manager. `total` None is not known."""

    def __init__(self, verb: str, total: int | None = None, *, shown: bool = True) -> None:
        self._verb = verb
        self._total = total
        self._begun = time.monotonic()
        self._next = self._begun + AFTER_S
        self._shown = shown
        self._bar: Bar | None = None
        self.count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, count: int) -> None:
        """So many more messages are done."""
        self.count += count
        if not self._shown:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EACH_S
        if self._bar is None:
            self._bar = self._start()
        self._bar.update(
            self._bar.task_ids[0],
            completed=self.count,
            description=f"{self._verb} {self.count:,} messages, {self.count / (now - self._begun):,.0f} a second",
        )

    def _start(self) -> "Bar":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        rest = (TimeElapsedColumn(),) if self._total is None else (BarColumn(), TimeRemainingColumn())
        bar = Progress(TextColumn("{task.description}"), *rest, console=Console(stderr=True), transient=True)
        bar.add_task(self._verb, total=self._total)
        bar.start()
        return bar
