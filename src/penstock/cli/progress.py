"""A bar for people who wait; nothing for programs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Told = Callable[[str, int, int], None]  # what, how many are done, of how many


@contextmanager
def progress() -> Iterator[Told]:
    """A function to be told how far something is; the bar is on stderr, and gone at the end."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=max(1, total))

        yield told
