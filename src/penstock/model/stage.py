"""Staged publishing: entries that nobody sees before they are committed, all at once (DESIGN, decision 8).

A writer numbers its batches; a stage is one attempt at a part of a batch (a task of Spark's), sent in parts.
"""

from collections.abc import Sequence

import msgspec

from .entry import NewEntry


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
    """What is staged for one log by one part: numbers only. `checksum` is the part's as it came."""

    key: StageKey
    part: int
    checksum: int
    at: int  # ms since the epoch
    ledger: int
    topic: str
    messages: int
    size_bytes: int


class Span(msgspec.Struct, frozen=True):
    """What a commit appended to one log: entries with ids from `entry_id`, messages with offsets from `offset`."""

    topic: str
    ledger: int
    entry_id: int
    entries: int
    offset: int
    messages: int
    size_bytes: int


class Commit(msgspec.Struct, frozen=True):
    """The last batch that a writer committed. `owner` is the role that did, empty where none was asked for.

    `keep`: it is remembered for good; else for as long as stages are.
    """

    writer: str
    batch: int
    at: int  # ms since the epoch; also the time by which the log finds what was committed
    owner: str = ""
    keep: bool = True
    spans: tuple[Span, ...] = ()
