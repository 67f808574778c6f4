"""The ports of staged publishing: storage of parts, and fencing, memory and commits of writers.

A `Parts` keeps the entries of parts apart from their topics. A `Writers` knows the writers and their commits,
and opens a `Session` on one: while it is open, either no other process changes the writer, or nothing that the session
changes is stored.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from penstock.broker.staging import Expected, StagedBatch
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Target, Targets, Writer

from .batches import B, Batch

B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)

Runs = Sequence[tuple[Topic, Sequence[NewEntry]]]
Over = Sequence[tuple[B, Sequence[str]]]  # batches, and their stages to drop
Outline = tuple[Mapping[int, StagedBatch], int]  # a writer's batches, and their size in bytes


class Interrupted(PenstockError):
    """Another process took the writer, or the outcome of a change is not known. A new session finds out what was stored."""


class Parts(Protocol[B]):
    """The parts of all writers, as the batches that they are of."""

    async def start(self) -> None:
        """Learn the stages, before anything else is called. Raises UNAVAILABLE; then it is called again."""

    async def put(self, key: StageKey, part: int, checksum: int, runs: Runs, origin: str) -> None:
        """Store a part durably; without effect if it is known to be stored.

        `origin` is what its space is counted for, if that is bounded. Raises STAGE_CONFLICT for other content under the
        same number, if it is known, TOO_LARGE, STORAGE_FULL, TOO_MANY_REQUESTS, BAD_PARAMETER and UNAVAILABLE.
        """

    async def batch(self, writer: str, number: int) -> B:
        """A batch with everything that any process has staged until now; empty if that is nothing."""
        ...

    async def batches(self, writer: str) -> Mapping[int, B]:
        """All batches of a writer, by number."""
        ...

    def known(self, writer: str) -> Mapping[int, B]:
        """Those batches of a writer that the process has in memory."""
        ...

    async def outlines(self, writers: Sequence[str]) -> Sequence[Outline]:
        """The staged batches of each writer; they may be without stages, and the size may be a rough one."""
        ...

    async def drop(self, held: B, stages: Collection[str]) -> None:
        """Delete stages of a batch; those that are gone are passed over."""

    def expired(self, before: int) -> Sequence[B]:
        """The batches without a further part since `before` (ms since the epoch), unless they expire by themselves."""
        ...

    async def sweep(self) -> None:
        """Release unused resources. Called at intervals."""

    async def close(self) -> None:
        """Stop; staged parts stay."""


class Session(Protocol[B_contra]):
    """One writer. Changes are stored together, at the latest when the session ends without an error."""

    @property
    def writer(self) -> Writer | None:
        """The writer, None if it is not known."""

    async def last(self, targets: Targets) -> Commit | None:
        """The last commit to a set of topics; without one, that before commits named their topics."""

    async def targets(self) -> Sequence[Target]:
        """The last commits of the writer, by their topics."""
        ...

    async def claim(self, writer: Writer) -> None:
        """Store whose the writer is. Raises TOO_MANY_REQUESTS."""

    async def admit(self, name: TopicName, ledger: int) -> None:
        """Prepare to append to a topic or partition; `ledger` as in `Share`.

        Raises TOPIC_NOT_FOUND, also if the topic was created again after staging, TOPIC_TERMINATED, EXCLUSIVE_PRODUCER,
        BACKLOG_QUOTA_HOLD and BACKLOG_QUOTA_EXCEPTION.
        """

    async def append(
        self,
        wanted: Commit,
        held: B_contra,
        stages: Sequence[Expected],
        over: Over[B_contra],
        tried: list[Commit],
    ) -> Commit:
        """Append the entries of `stages` to their topics, which were admitted, and remember the commit, all or nothing;
        the commit with its spans, when readers find the entries. `over` as in `repeat`. `tried` gets the commit before its
        outcome can be unknown: a later session learns from it whether it was stored."""
        ...

    async def repeat(self, commit: Commit, over: Over[B_contra]) -> None:
        """Store a last commit with the stages of its repeat.

        The stages of `over` are dropped by `Parts.drop` after the session, unless that is part of the change.
        """

    async def ledger_of(self, name: TopicName) -> int | None:
        """The ledger of a log today, as in spans; None if a recreated log cannot be distinguished from the first one.

        Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, and BAD_PARAMETER for a topic that has partitions now.
        """

    async def forget(self, targets: Targets | None) -> bool:
        """Forget the last commit to a set of topics, or (None) the writer; whether it was known."""
        ...


class Writers(Protocol[B_contra]):
    """The writers, and their last commits. `touch_ms`: how exactly the time of a writer's last use is kept; 0: by commits
    alone."""

    touch_ms: int

    async def start(self) -> None:
        """Learn the commits, before anything else is called. Raises UNAVAILABLE; then it is called again."""

    def open(self, name: str, size_bytes: int) -> AbstractAsyncContextManager[Session[B_contra]]:
        """A session on a writer, which may not be known, to commit at most `size_bytes`.

        The caller has the writer's lock in this process. Raises Interrupted, UNAVAILABLE and NEWER_FORMAT, at its end, too.
        """
        ...

    async def recall(self, name: str) -> Writer | None:
        """The writer as it was a moment ago; asked with each part."""

    async def find(self, name: str) -> tuple[Writer, Sequence[Target]] | None:
        """A writer with its last commits. Raises NEWER_FORMAT."""

    def listed(
        self, after: str, owner: str | None, writers_max: int
    ) -> AsyncIterator[tuple[Writer, Sequence[Target]]]:
        """The writers after a name, in order, at least one more than `writers_max` if there are; of one owner, or (None) all."""
        ...

    async def idle(self) -> Sequence[Writer]:
        """Writers that were not in use for long enough to be forgotten; at most some thousands."""
        ...

    async def sweep(self) -> None:
        """Release unused resources. Called at intervals."""

    async def close(self) -> None:
        """Stop."""
