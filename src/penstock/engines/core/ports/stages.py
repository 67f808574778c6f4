"""Staged publishing: entries that no consumer sees until a commit appends them, and who commits them."""

from asyncio import Future
from collections.abc import Awaitable, Sequence
from typing import Protocol

from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets, Writer


class StageStore(Protocol):
    """Entries that lie apart from their logs until they are committed or dropped."""

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> "Future[None]":
        """Store a part of a stage, all or none; completes when it is durable. A part comes once.

        The producers' sequence ids are not stored: repeats of a batch are told by its writer and number.
        Raises STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, and TOPIC_NOT_FOUND for a log that is not there.
        """
        ...

    def load_stages(self) -> Awaitable[tuple[list[StagedRun], list[Writer]]]:
        """What is staged, and the writers that staged it."""
        ...

    def drop_stages(self, keys: Sequence[StageKey]) -> Awaitable[None]:
        """Delete stages; those that are not there are passed over."""
        ...


class CommitStore(Protocol):
    """Commits of stages, and of each writer the last one to each set of topics."""

    def commit_stages(
        self, commit: Commit, stages: Sequence[str], lost: Sequence[StageKey] = (), commits_max: int = 0
    ) -> "Future[Commit]":
        """Append what `stages` of the commit's batch hold, in their order and that of their parts.

        Everything happens in one transaction: the appends to all logs, the memory of the commit, the writer's
        time, and the dropping of `lost`. `at` becomes the time by which `find_time` finds the entries. Returns the
        commit with its spans, one a log. Where the writer has committed this batch or a later one to these topics
        (or, while it has no commit to them, before commits named their topics), nothing happens, and that commit
        is returned.

        Takes a time that depends on the number of entries, not of bytes. Raises STAGE_NOT_FOUND,
        TOPIC_NOT_FOUND, STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, and TOO_MANY_REQUESTS where the origin of the writer has
        `commits_max` commits (0: any number) and the writer none to these topics; then nothing has changed.
        """
        ...

    def repeat_commit(self, commit: Commit, keys: Sequence[StageKey]) -> "Future[None]":
        """Store `commit`, a last commit with the stages of a repeat, and drop `keys`; in one transaction."""
        ...

    def find_commit(self, writer: str, topics: Targets) -> Awaitable[Commit | None]:
        """A writer's last commit to these topics; without one, that before commits named their topics."""
        ...

    def list_targets(self, writer: str) -> Awaitable[list[Target]]:
        """The last commits of a writer, by their topics."""
        ...

    def forget_commit(self, writer: str, topics: Targets) -> Awaitable[bool]:
        """Delete what `find_commit` finds, for these topics alone; False where that is nothing."""
        ...


class WriterStore(Protocol):
    """The writers of staged batches."""

    def save_writer(self, writer: Writer, writers_max: int = 0) -> "Future[bool]":
        """Store a writer, durably, before what it stages; its `keep` stays once it is set.

        False, and nothing is stored, where it is new and its origin has `writers_max` writers (0: any number).
        """
        ...

    def find_writer(self, name: str) -> Awaitable[Writer | None]:
        """A writer by its name."""
        ...

    def list_writers(self, after: str, owner: str | None, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers in the order of their names, beginning behind `after`; of one owner unless that is None."""
        ...

    def idle_writers(self, keep: bool, before: int, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers with this `keep` whose time is not after `before`, the oldest first; none with stages."""
        ...

    def forget_writers(self, names: Sequence[str]) -> Awaitable[None]:
        """Delete writers with all their commits; what they have staged stays."""
        ...
