"""What the broker asks of the world: a store for logs, cursors, stages and documents; the bytes of entries; and whose turn it is to run
subscriptions.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from penstock.broker.topic import MetaStore as MetaStore
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange as CursorChange
from penstock.engines.subscription.store import CursorWriter
from penstock.model.entry import AppendResult, Entry, NewEntry, NewRun, Stretch
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage, Payloads
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets, Writer


class LogState(msgspec.Struct):
    """A log when opened. Empty when `first_entry == next_entry`.

    `producers` maps a producer's name to the highest sequence id stored under it.
    """

    ledger: int
    first_entry: int
    next_entry: int
    first_offset: int
    next_offset: int
    size_bytes: int
    producers: dict[str, int]


def no_log(ledger: int) -> PenstockError:
    """What a `Log` raises for a ledger that it does not know."""
    return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"there is no log with ledger {ledger}")


class Log(Protocol):
    """Append-only logs of entries, one per topic partition, each with its own ledger number.

    A ledger is known from its `open` (once since `start`) until its `delete`. Of others, reads find nothing,
    `trim`, `forget_producers` and `delete` do nothing, and `append` raises TOPIC_NOT_FOUND. Entry ids and offsets
    count from 0 without gaps. A call is under way as soon as it is made, awaited or not; one that is cancelled may still
    take place. Reads find entries once their append has completed, not before.
    """

    def open(self, topic: str) -> Awaitable[LogState]:
        """Open the log of `topic`, creating it durably if there is none (with a ledger that was never used before)."""
        ...

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> "Future[AppendResult]":
        """Append `entries` in order, all or none; completes when they are durable.

        Appends to one ledger are stored in the order of the calls, whichever completes first. The producers'
        sequence ids are stored in the same transaction; the highest stays. No entries at all are appended
        the position of the next entry. Raises STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, TOPIC_NOT_FOUND; then nothing of this call
        is stored, and no other call is the worse for it.
        """
        ...

    def read(self, ledger: int, entry_id: int, entries_max: int, bytes_max: int) -> Awaitable[list[Entry]]:
        """Entries from `entry_id` (or the first) on, in order: at least one if there is one, then
        as many as both bounds allow, `bytes_max` counting their data. A store may give fewer, but one."""
        ...

    def read_runs(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> Awaitable[Sequence[Stretch]]:
        """The same, with runs as they are stored."""
        ...

    def trim(self, ledger: int, before_entry: int) -> "Future[int]":
        """Delete the entries before `before_entry`, or all; ids and offsets go on as if they were there.

        Returns how many bytes of data went."""
        ...

    def forget_producers(self, ledger: int, names: Sequence[str]) -> Awaitable[None]:
        """Delete the sequence ids of producers; entries appended under their names later count from the start."""
        ...

    def delete(self, ledger: int) -> Awaitable[None]:
        """Delete a log with its cursors; its ledger number is never used again."""
        ...


class LogSearch(Protocol):
    """Positions in the logs of a `Log`, by offset, time and size. What it says of unknown ledgers holds here."""

    def find_offset(self, ledger: int, offset: int) -> Awaitable[Entry | None]:
        """The entry that holds `offset`, or the first after it; None past the end. O(log n)."""
        ...

    def find_time(self, ledger: int, publish_time: int) -> Awaitable[Entry | None]:
        """The first entry published at or after `publish_time`; None when all are older.

        It is found by bisection: if publish times are out of order, as producers may set them, it is some
        entry at or after `publish_time` whose predecessor is older, or None.
        """
        ...

    def find_size(self, ledger: int, size_bytes: int) -> Awaitable[Entry | None]:
        """The first entry that has at most `size_bytes` of data in itself and all after it; None when not even
        the last has so few. O(log n)."""
        ...

    def size_since(self, ledger: int, entry_id: int) -> Awaitable[int]:
        """Bytes of data in the entries from `entry_id` (or the first there is) on."""
        ...


class StageStore(Protocol):
    """Entries that lie apart from their logs until they are committed or dropped."""

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> "Future[None]":
        """Store a part of a stage, all or none; completes when it is durable. A part comes once.

        The producers' sequence ids are not stored: repeats of a batch are recognized by its writer and number.
        Raises STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, and TOPIC_NOT_FOUND for a log that is not there.
        """
        ...

    def load_stages(self) -> Awaitable[tuple[list[StagedRun], list[Writer]]]:
        """Stages and their writers."""
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
        commit with its spans, one a log. If the writer has committed this batch or a later one to these topics
        (or, while it has no commit to them, before commits named their topics), nothing happens, and that commit
        is returned.

        Takes a time that depends on the number of entries, not of bytes. Raises STAGE_NOT_FOUND,
        TOPIC_NOT_FOUND, STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, and TOO_MANY_REQUESTS if the origin of the writer has
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
        """Delete the commit that `find_commit` finds, for these topics alone; False if there is none."""
        ...


class WriterStore(Protocol):
    """The writers of staged batches."""

    def save_writer(self, writer: Writer, writers_max: int = 0) -> "Future[bool]":
        """Store a writer, durably, before what it stages; its `keep` stays once it is set.

        False, and nothing is stored, if it is new and its origin has `writers_max` writers (0: any number).
        """
        ...

    def find_writer(self, name: str) -> Awaitable[Writer | None]:
        """A writer by its name."""
        ...

    def list_writers(self, after: str, owner: str | None, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers in the order of their names, beginning after `after`; of one owner unless `owner` is None."""
        ...

    def idle_writers(self, keep: bool, before: int, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers with this `keep` whose time is not after `before`, the oldest first; none with stages."""
        ...

    def forget_writers(self, names: Sequence[str]) -> Awaitable[None]:
        """Delete writers with all their commits; what they have staged stays."""
        ...


class CursorStore(CursorWriter, Protocol):
    """Durable cursors, one per log and subscription."""

    def load_cursors(self, ledger: int) -> Awaitable[list[CursorChange]]:
        """All cursors of a log, complete: no chunk is None, and `properties` only if they were never set."""
        ...


class Store(Log, LogSearch, CursorStore, MetaStore, StageStore, CommitStore, WriterStore, Protocol):
    """A log backend: all ports over one storage.

    A store that may fail for its disk's sake has a `health`, a `StorageHealth` that it reports to.
    """

    def start(self) -> Awaitable[None]:
        """Open the storage; nothing else may be called before.

        Raises UNAVAILABLE when another server has it, when it is of a newer version, or when it is damaged.
        """
        ...

    def close(self) -> Awaitable[None]:
        """Finish the requests in progress and close the storage; later calls raise UNAVAILABLE.

        To close again does nothing.
        """
        ...


class Batches(Protocol):
    """Encodes messages as entries and decodes entries (implemented by `penstock.wire.entry`)."""

    def encode(
        self,
        messages: Sequence[OutMessage],
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """One entry of all `messages`: alone if there is only one, else a batch.

        Message i gets its own sequence id, or `sequence_id + i`. Delayed and encrypted messages must come alone. Raises
        BAD_ENCODING for a value that has no bytes (lone surrogates, numbers beyond 64 bits), and TOO_LARGE.
        """
        ...

    def encode_each(
        self, messages: Sequence[OutMessage], *, producer: str, publish_time: int
    ) -> list[NewEntry]:
        """One entry for each message, by the message's own sequence id and schema version."""
        ...

    def encode_plain(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """`encode` for messages that have only payloads, faster."""
        ...

    def encode_plain_each(
        self,
        payloads: Payloads,
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewRun:
        """One entry for each of such messages, numbered from `sequence_id`. The run does not keep the sequence ids."""
        ...

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry; the caller must not change the list. An encrypted or chunk entry is one message
        with its payload unchanged. Raises CHECKSUM or BAD_ENCODING."""
        ...

    def keys(self, entry: Entry) -> list[bytes]:
        """For each message the bytes that Key_Shared hashes: its ordering key, else its key (decoded if it is base64),
        else `{producer}-{sequence id}`. If the entry cannot be opened: the entry's own key for all messages."""
        ...

    def changes(self, entry: Entry) -> list[tuple[bytes | None, bool]] | None:
        """For each message its key (None without one) and whether it deletes the key, for compaction; None for an
        entry that is kept or removed as a whole."""
        ...


T = TypeVar("T", contravariant=True)  # the topic or partition

Held = Callable[[], bool]


class OpenedCursor(NamedTuple):
    """A durable subscription as it is stored."""

    cursor: OffsetSet
    properties: dict[str, str]


class Lease(Protocol[T]):
    """Which process runs the durable subscriptions of each log."""

    def hold(self, topic: T) -> Held:
        """Run the durable subscriptions of a topic here; raises why this process does not.

        The result says whether this process has had the topic without a break since: if not, cursors that were read before may be
        old, and nothing is delivered.
        """
        ...

    def lost(self, topic: T) -> PenstockError:
        """The error of an operation that began while a topic was held, and is not held any more."""
        ...


class Cursors(Protocol[T]):
    """The cursors of durable subscriptions, in any process."""

    def writer(self, topic: T) -> CursorWriter:
        """What keeps the cursors of a topic's subscriptions while they run here."""
        ...

    def has(self, topic: T, name: str) -> bool:
        """Whether a durable subscription of this name exists."""
        ...

    def names(self, topic: T) -> Collection[str]:
        """All durable subscriptions of a topic."""
        ...

    def open(self, topic: T, name: str, *, refreshed: bool) -> Awaitable[OpenedCursor | None]:
        """The cursor of a subscription that does not run here yet, fitted to the log; None if there is none.

        The topic is held; `refreshed`: it knows its bounds. Raises UNAVAILABLE, NEWER_FORMAT.
        """
        ...

    def create(self, topic: T, name: str, mark: int, properties: Mapping[str, str]) -> Awaitable[None]:
        """Keep a new subscription, everything below `mark` acknowledged; completes when it is durable. The topic is held."""
        ...
