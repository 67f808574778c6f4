"""Staged publishing: entries that no consumer sees before they are committed, all at once (docs/decisions/0018).

A writer numbers its batches; a stage is one attempt at a part of a batch (a task of Spark's), sent in parts.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from .entry import NewEntry
from .errors import ErrorKind, PenstockError


class StageKey(msgspec.Struct, frozen=True):
    """A stage: `stage` names it within the batch `batch` of `writer`."""

    writer: str
    batch: int
    stage: str


class StageRun(msgspec.Struct, frozen=True):
    """Entries to be staged for one log, in order."""

    ledger: int
    topic: str
    entries: Sequence[NewEntry]


class StagedRun(msgspec.Struct, frozen=True):
    """The staged entries of one part for one log: numbers only. `checksum` is the part's as received."""

    key: StageKey
    part: int
    checksum: int
    at: int  # ms since the epoch
    ledger: int
    topic: str
    messages: int
    size_bytes: int


class Span(msgspec.Struct, frozen=True):
    """What a commit appended to one log: entries with ids from `entry_id`, messages with offsets from `offset`.

    In a cluster the offset is -1, as it is not known, and `last` is the position of the last entry: others may be in between.
    """

    topic: str
    ledger: int
    entry_id: int
    entries: int
    offset: int
    messages: int
    size_bytes: int
    last: tuple[int, int] | None = None  # ledger and entry; None: the ids count on


FORGOTTEN: Final = -1  # the batch of a commit that was forgotten for some topics: every batch is above it

Targets = tuple[str, ...]  # names of topics, sorted, each once; partitions count as their topic


class Writer(msgspec.Struct, frozen=True):
    """A writer's name in use. `owner` is the role that first staged under it, empty without authentication.

    `origin` is what writers are counted by: the role, or the address without authentication. `at` is when the
    writer last staged or committed, roughly (ms since the epoch). `keep`: it has a commit that must be kept.
    """

    name: str
    owner: str
    origin: str
    at: int
    keep: bool = False


class Target(msgspec.Struct, frozen=True):
    """The last batch that a writer committed to a set of topics; None: before commits named their topics."""

    topics: Targets | None
    batch: int
    at: int  # ms since the epoch
    messages: int
    keep: bool = True


class Commit(msgspec.Struct, frozen=True):
    """The last batch that a writer committed to a set of topics.

    `topics` are those that the writer declares, () if it declares none. None is a commit from before
    commits named their topics: it counts for every set without a separate one. `stages` is a digest of what the
    commit named. `keep`: the commit is remembered until it expires; else for an hour.
    """

    writer: str
    batch: int
    at: int  # ms since the epoch; also the time by which the log finds the commit
    topics: Targets | None = ()
    keep: bool = True
    stages: str = ""
    spans: tuple[Span, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages were committed."""
        return sum(span.messages for span in self.spans)

    @property
    def target(self) -> Target:
        """The commit without what it appended."""
        return Target(self.topics, self.batch, self.at, self.messages, self.keep)


def too_many_commits(commits_max: int) -> PenstockError:
    """The error of a commit beyond the maximum of one origin."""
    return PenstockError(
        ErrorKind.TOO_MANY_REQUESTS,
        f"{commits_max} last commits of this role or address are kept (broker.max_writers_per_role); forget the writers"
        " that are not needed",
    )
