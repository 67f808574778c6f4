"""What the writer is asked to do. Each piece of work carries its future there and its outcome back."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from penstock.engines.embedded.ports import CursorChange
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.stage import Commit, StageKey, StageRun, Targets, Writer

from .schema import PAGE_BYTES


class Work:
    """One call. `grows`: it asks for room, and is refused when there is none; other work may use the reserve.

    `mixes`: it may share a transaction with any other work that mixes; the rest keep among their own kind,
    because there the order matters. `size_bytes`: what it is about to write, roughly.
    """

    __slots__ = ("error", "future", "result", "size_bytes")
    grows: ClassVar[bool] = False
    mixes: ClassVar[bool] = False

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self.future: Final = future
        self.result: Any = None
        self.size_bytes = 0
        self.error: PenstockError | None = None

    @property
    def needed_bytes(self) -> int:
        """Room that it may take in the file, roughly."""
        return self.size_bytes + PAGE_BYTES

    def complete(self) -> None:
        """Tell the caller, on the loop; one that was cancelled meanwhile does not care."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Open(Work):
    __slots__ = ("topic",)
    grows = True
    mixes = True

    def __init__(self, future: "asyncio.Future[Any]", topic: str) -> None:
        super().__init__(future)
        self.topic: Final = topic


class Append(Work):
    __slots__ = ("entries", "ledger")
    grows = True
    mixes = True

    def __init__(self, future: "asyncio.Future[Any]", ledger: int, entries: Sequence[NewEntry]) -> None:
        super().__init__(future)
        self.ledger: Final = ledger
        self.entries: Final = entries
        self.size_bytes = sum([len(entry.data) for entry in entries])


class SaveCursors(Work):
    __slots__ = ("changes",)
    mixes = True

    def __init__(self, future: "asyncio.Future[Any]", changes: Sequence[CursorChange]) -> None:
        super().__init__(future)
        self.changes: Final = changes


class SaveMeta(Work):
    __slots__ = ("documents",)
    mixes = True

    def __init__(
        self, future: "asyncio.Future[Any]", documents: Sequence[tuple[str, str, bytes | None]]
    ) -> None:
        super().__init__(future)
        self.documents: Final = documents


class DeleteCursor(Work):
    __slots__ = ("ledger", "subscription")

    def __init__(self, future: "asyncio.Future[Any]", ledger: int, subscription: str) -> None:
        super().__init__(future)
        self.ledger: Final = ledger
        self.subscription: Final = subscription


class Trim(Work):
    __slots__ = ("before_entry", "ledger")

    def __init__(self, future: "asyncio.Future[Any]", ledger: int, before_entry: int) -> None:
        super().__init__(future)
        self.ledger: Final = ledger
        self.before_entry: Final = before_entry


class ForgetProducers(Work):
    __slots__ = ("ledger", "names")

    def __init__(self, future: "asyncio.Future[Any]", ledger: int, names: Sequence[str]) -> None:
        super().__init__(future)
        self.ledger: Final = ledger
        self.names: Final = names


class Delete(Work):
    __slots__ = ("ledger",)

    def __init__(self, future: "asyncio.Future[Any]", ledger: int) -> None:
        super().__init__(future)
        self.ledger: Final = ledger


class Stage(Work):
    __slots__ = ("at", "checksum", "key", "part", "runs")
    grows = True
    mixes = True

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        key: StageKey,
        part: int,
        checksum: int,
        at: int,
        runs: Sequence[StageRun],
    ) -> None:
        super().__init__(future)
        self.key: Final = key
        self.part: Final = part
        self.checksum: Final = checksum
        self.at: Final = at
        self.runs: Final = runs
        self.size_bytes = sum([len(entry.data) for run in runs for entry in run.entries])


class CommitStages(Work):
    __slots__ = ("commit", "commits_max", "lost", "stages")
    grows = True

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        commit: Commit,
        stages: Sequence[str],
        lost: Sequence[StageKey],
        commits_max: int,
    ) -> None:
        super().__init__(future)
        self.commit: Final = commit
        self.stages: Final = stages
        self.lost: Final = lost
        self.commits_max: Final = commits_max


class RepeatCommit(Work):
    __slots__ = ("commit", "keys")

    def __init__(self, future: "asyncio.Future[Any]", commit: Commit, keys: Sequence[StageKey]) -> None:
        super().__init__(future)
        self.commit: Final = commit
        self.keys: Final = keys


class DropStages(Work):
    __slots__ = ("keys",)

    def __init__(self, future: "asyncio.Future[Any]", keys: Sequence[StageKey]) -> None:
        super().__init__(future)
        self.keys: Final = keys


class SaveWriter(Work):
    __slots__ = ("writer", "writers_max")
    grows = True

    def __init__(self, future: "asyncio.Future[Any]", writer: Writer, writers_max: int) -> None:
        super().__init__(future)
        self.writer: Final = writer
        self.writers_max: Final = writers_max


class ForgetWriters(Work):
    __slots__ = ("names",)

    def __init__(self, future: "asyncio.Future[Any]", names: Sequence[str]) -> None:
        super().__init__(future)
        self.names: Final = names


class ForgetCommit(Work):
    __slots__ = ("topics", "writer")

    def __init__(self, future: "asyncio.Future[Any]", writer: str, topics: Targets) -> None:
        super().__init__(future)
        self.writer: Final = writer
        self.topics: Final = topics


class LimitSize(Work):
    __slots__ = ("size_max_bytes",)

    def __init__(self, future: "asyncio.Future[Any]", size_max_bytes: int | None) -> None:
        super().__init__(future)
        self.size_max_bytes: Final = size_max_bytes


class Stop(Work):
    """The last work: close the file."""

    __slots__ = ()
