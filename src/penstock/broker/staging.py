"""Staged publishing: parts of a batch that are kept apart until one commit appends them all ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Target, Writer

from .topic import Topic


class Expected(msgspec.Struct, frozen=True):
    """A stage as its writer counted it: a commit takes it as it was meant, or not at all."""

    stage: str
    parts: int
    messages: int
    size_bytes: int


def another_roles(writer: str) -> PenstockError:
    """The error of a writer that belongs to another role."""
    return PenstockError(ErrorKind.FORBIDDEN, f"writer {writer} belongs to another role")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller that stages or commits. `role` is empty without authentication; writers are counted by `origin`.

    `may_produce` raises FORBIDDEN; `forbidden` makes the error of a writer that is another role's.
    """

    role: str = ""
    origin: str = ""
    superuser: bool = False
    may_produce: Callable[[TopicName], None] = lambda topic: None
    forbidden: Callable[[str], PenstockError] = another_roles

    def check(self, writer: Writer) -> None:
        """Raise FORBIDDEN unless the writer is the caller's, or has no owner."""
        if self.role and writer.owner and writer.owner != self.role:
            raise self.forbidden(writer.name)

    def check_own(self, writer: Writer) -> None:
        """Raise FORBIDDEN unless the writer is the caller's, or the caller is a superuser or not authenticated."""
        if self.role and not self.superuser and writer.owner != self.role:
            raise self.forbidden(writer.name)


class Published(msgspec.Struct):
    """The result of an append of entries: the position of the first one, and the number of repeats.

    `first` is None if all were, `offset` also if the log does not report it. `last_sequence_id` is the highest of the
    last entry's producer, if repeats are looked for.
    """

    first: MessageId | None = None
    offset: int | None = None
    repeats: int = 0
    last_sequence_id: int | None = None


class StagedBatch(msgspec.Struct, frozen=True):
    """The stages of a batch, as a commit has to name them, and when the last part of them came (ms)."""

    at: int
    stages: Sequence[Expected]


class WriterState(msgspec.Struct, frozen=True):
    """A writer with its last commits, its staged batches by number, and their size in bytes."""

    writer: Writer
    targets: Sequence[Target]
    batches: Mapping[int, StagedBatch]
    size_bytes: int


class Staging(Protocol):
    """The writers of staged batches, each of which belongs to the role that first used its name; their stages and commits."""

    async def stage(
        self,
        key: StageKey,
        part: int,
        checksum: int,
        entries: Sequence[tuple[Topic, Sequence[NewEntry]]],
        caller: Caller,
    ) -> None:
        """Stage a part durably; again, if it has come before, without effect.

        Raises FORBIDDEN for another role's writer, STAGE_CONFLICT for other content under the same number,
        TOO_LARGE, STORAGE_FULL, TOO_MANY_REQUESTS, and BAD_PARAMETER for a topic that keeps nothing.
        """

    async def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        caller: Caller,
        *,
        topics: Sequence[TopicName],
        keep: bool,
    ) -> tuple[Commit, bool]:
        """Append what the stages hold to their topics, in one transaction; the commit, and whether it is new.

        `topics` are those that the writer writes to. The last batch that it committed to them changes nothing and
        returns its commit, if as many messages of each topic are staged as were committed. Raises
        BATCH_CONFLICT if they are not, if a topic was deleted since, and for a batch before the last;
        STAGE_NOT_FOUND, STAGE_CONFLICT if it is not as `stages` say, FORBIDDEN for another's writer and by
        `may_produce`, TOPIC_NOT_FOUND, TOPIC_TERMINATED, EXCLUSIVE_PRODUCER, BACKLOG_QUOTA_HOLD,
        BACKLOG_QUOTA_EXCEPTION, TOO_MANY_REQUESTS, and what the store raises; then nothing has changed.
        """

    async def abort(self, writer: str, batch: int, caller: Caller, stage: str | None = None) -> int:
        """Drop the stages of a batch, or one of them; returns their number.

        Raises FORBIDDEN, and STAGE_CONFLICT if nothing is staged and the batch is committed: that is never undone.
        """

    async def writers(self, caller: Caller, after: str, writers_max: int) -> tuple[list[WriterState], bool]:
        """The writers after a name, and whether there are more: the caller's own, or all. Their batches may be without
        stages."""

    async def writer(self, name: str, caller: Caller) -> WriterState | None:
        """A writer, None if it is not known; raises FORBIDDEN for another role's."""

    async def forget(
        self, writer: str, caller: Caller, topics: Sequence[TopicName] | None, *, force: bool
    ) -> None:
        """Remove a writer, or (with `topics`) its last commit to these: a repeated batch is new.

        Raises STAGE_CONFLICT for a writer that has something staged, which `force` drops; NOT_FOUND; FORBIDDEN.
        """
