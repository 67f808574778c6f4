"""What the writer is asked to do, the statements for it, and what their transaction is about to change in memory."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from penstock.engines.core.ports import CursorChange, LogState
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.stage import StageKey, StageRun

from .schema import PAGE_BYTES

ROWS_MAX: Final = 1024  # as many as the writer groups; with 8 columns well below SQLite's 32,766 parameters
Statement = tuple[str, list[Any]]


class RowStatement:
    """A statement `before … VALUES (?, ?), (?, ?) … after` over many rows at once, so that a commit has few steps.

    Python releases its lock on every step of a statement and has to win it back from a busy event loop, which may take as
    long as the switch interval each time. The texts come in powers of two, so that they stay prepared; rows that are missing
    to the next power are of NULLs and are passed over.
    """

    def __init__(self, columns: int, before: str, after: str = "") -> None:
        self.columns = columns
        self._before = before
        self._after = after
        self._texts: dict[int, str] = {}

    @classmethod
    def insert(cls, table: str, columns: int, conflict: str = "") -> "RowStatement":
        """Insert rows; none has NULL for its first column."""
        after = f") WHERE column1 IS NOT NULL {conflict}"
        return cls(columns, f"INSERT INTO {table} SELECT * FROM (VALUES ", after)  # noqa: S608

    @classmethod
    def delete(cls, table: str, key: tuple[str, ...]) -> "RowStatement":
        """Delete rows by their keys."""
        return cls(len(key), f"DELETE FROM {table} WHERE ({', '.join(key)}) IN (VALUES ", ")")  # noqa: S608

    def over(self, values: list[Any]) -> Iterator[Statement]:
        """The statements for all rows, whose `values` lie one after the other."""
        step = ROWS_MAX * self.columns
        for start in range(0, len(values), step):
            part = values[start : start + step] if len(values) > step else values
            size = 1 << (len(part) // self.columns - 1).bit_length()
            yield self._text(size), part + [None] * (size * self.columns - len(part))

    def _text(self, rows: int) -> str:
        text = self._texts.get(rows)
        if text is None:
            row = f"({', '.join('?' * self.columns)})"
            text = self._texts[rows] = self._before + ", ".join([row] * rows) + self._after
        return text


def listed(query: str, values: Sequence[Any]) -> Iterator[Statement]:
    """`query` with the list of an IN filled in for its `{}`; NULL equals nothing there."""
    for start in range(0, len(values), ROWS_MAX):
        part = list(values[start : start + ROWS_MAX])
        size = 1 << (len(part) - 1).bit_length()
        yield query.format(", ".join("?" * size)), part + [None] * (size - len(part))


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


class Work(msgspec.Struct, kw_only=True, eq=False):
    """One call, with its caller's future and its outcome. To be made on the loop.

    `mixes`: it may share a transaction with any other work that mixes; the rest only with their own kind,
    because there the order matters. `size_bytes`: what it is about to write, roughly.
    """

    mixes: ClassVar[bool] = False

    future: "asyncio.Future[Any]" = msgspec.field(default_factory=_future)
    result: Any = None
    size_bytes: int = 0
    error: PenstockError | None = None

    @property
    def kind(self) -> object:
        return type(self)

    @property
    def needed_bytes(self) -> int:
        """Room that it may take in the file, roughly."""
        return self.size_bytes + PAGE_BYTES

    def complete(self) -> None:
        """Give the outcome to the caller, on the loop; a cancelled one ignores it."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Open(Work, eq=False):
    mixes = True

    topic: str


class Append(Work, eq=False):
    """`size_bytes` is given: one is made for each message, and nothing may be computed twice."""

    mixes = True

    ledger: int
    entries: Sequence[NewEntry]


class Stage(Work, eq=False):
    mixes = True

    key: StageKey
    part: int
    checksum: int
    at: int
    runs: Sequence[StageRun]

    def __post_init__(self) -> None:
        self.size_bytes = sum([len(entry.data) for run in self.runs for entry in run.entries])


class SaveCursors(Work, eq=False):
    mixes = True

    changes: Sequence[CursorChange]


class SaveMeta(Work, eq=False):
    mixes = True

    documents: Sequence[tuple[str, str, bytes | None]]


class Change(Work, eq=False):
    """Any other call: `call(transaction, *args, **kwargs)`, which raises PenstockError before it writes, or not at all."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}

    @property
    def kind(self) -> object:
        return self.call


class LimitSize(Work, eq=False):
    size_max_bytes: int | None


class Stop(Work, eq=False):
    """The last work: close the file."""


class Extent(msgspec.Struct, frozen=True, gc=False):
    """The bounds of a log: from `first_…` up to and without `next_…`. Frozen, so that threads may share one."""

    ledger: int
    first_entry: int = 0
    first_offset: int = 0
    first_byte: int = 0
    next_entry: int = 0
    next_offset: int = 0
    next_byte: int = 0

    def until(self, entry: int, offset: int, byte: int) -> "Extent":
        """The log with another end."""
        return Extent(self.ledger, self.first_entry, self.first_offset, self.first_byte, entry, offset, byte)

    def state(self, producers: dict[str, int]) -> LogState:
        """The log as the engine wants to know it."""
        return LogState(
            ledger=self.ledger,
            first_entry=self.first_entry,
            next_entry=self.next_entry,
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            size_bytes=self.next_byte - self.first_byte,
            producers=producers,
        )


ExtentChanges = dict[int, Extent | None]  # by ledger; None: deleted


def apply(changes: ExtentChanges, extents: dict[int, Extent]) -> None:
    """Let `extents` be as `changes` say."""
    for ledger, extent in changes.items():
        if extent is None:
            extents.pop(ledger, None)
        else:
            extents[ledger] = extent


class Transaction:
    """The connection within a transaction, and what comes into force with its commit.

    That is the logs as they will be, the id ranges to be freed (see `Sweeps`), and the outcomes of the works.
    """

    def __init__(
        self, connection: sqlite3.Connection, extents: Mapping[int, Extent], next_ledger: int
    ) -> None:
        self.connection = connection
        self._extents = extents
        self.next_ledger = next_ledger
        self.changed: ExtentChanges = {}
        self.freed: list[tuple[int, int]] = []
        self.outcomes: list[tuple[Work, Any]] = []  # a PenstockError is one, too

    def execute(self, statements: Iterable[Statement]) -> None:
        for text, values in statements:
            self.connection.execute(text, values)

    def extent(self, ledger: int) -> Extent | None:
        """A log with the changes so far, or None when it is not open."""
        return self.changed[ledger] if ledger in self.changed else self._extents.get(ledger)

    def free(self, start: int, until: int) -> None:
        """Mark the entries with these ids as deleted; the sweeps free their room."""
        if start < until:
            self.connection.execute("INSERT INTO sweeps VALUES (?, ?)", (start, until))
            self.freed.append((start, until))
