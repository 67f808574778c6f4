"""One log in memory, and the form that all calls of the store have."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

from penstock.engines.core.ports import CursorChange
from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.errors import PenstockError

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def at_once(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], asyncio.Future[T]]:
    """Make a method that answers at once one of a port: what it returns or raises is in the future."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(method(self, *args, **kwargs))
        except PenstockError as error:
            future.set_exception(error)
        return future

    update_wrapper(call, method)
    return call


@dataclass(slots=True)
class MemoryLog:
    """One log; `entries[0]` has the id `first_entry`.

    A deque: a non-persistent topic at its bound lets one entry go for each that comes.
    """

    ledger: int
    topic: str
    entries: deque[Entry] = field(default_factory=deque)
    first_entry: int = 0
    next_offset: int = 0
    size_bytes: int = 0
    producers: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, CursorChange] = field(default_factory=dict)

    @property
    def next_entry(self) -> int:
        return self.first_entry + len(self.entries)

    def append(self, entries: Sequence[NewEntry]) -> AppendResult:
        placed = AppendResult(self.next_entry, self.next_offset)
        for number, new in enumerate(entries, placed.entry_id):
            self.entries.append(
                Entry(
                    self.ledger,
                    number,
                    self.next_offset,
                    new.count,
                    new.publish_time,
                    new.deliver_at,
                    new.data,
                )
            )
            self.next_offset += new.count
            self.size_bytes += len(new.data)
            if new.producer and new.sequence_id > self.producers.get(new.producer, -1):
                self.producers[new.producer] = new.sequence_id
        return placed

    def trim(self, before_entry: int) -> int:
        """Delete the entries before an id; returns their bytes."""
        freed = 0
        while self.entries and self.first_entry < before_entry:
            freed += len(self.entries.popleft().data)
            self.first_entry += 1
        self.size_bytes -= freed
        return freed

    def since(self, entry_id: int) -> Iterator[Entry]:
        """The entries from an id on."""
        for at in range(max(0, entry_id - self.first_entry), len(self.entries)):
            yield self.entries[at]
