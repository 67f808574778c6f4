"""What the core asks of the world: a store for entries, cursors and metadata, the entries' format, a clock.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.message import Message, OutMessage
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets, Writer


class LogState(msgspec.Struct):
    """A log as it stands when opened. Empty when `first_entry == next_entry`.

    `producers` maps a producer's name to the highest sequence id stored under it.
    """

    ledger: int
    first_entry: int
    next_entry: int
    first_offset: int
    next_offset: int
    size_bytes: int
    producers: dict[str, int]


class Log(Protocol):
    """Append-only logs of entries, one per topic partition, each with a ledger number of its own.

    A ledger is known from its `open` (once since `start`) until its `delete`. Of others, reads find nothing,
    `trim`, `forget_producers` and `delete` do nothing, and `append` raises TOPIC_NOT_FOUND. Entry ids and offsets
    count from 0 without gaps. A call is under way as soon as it is made, awaited or not; one that is cancelled may still
    take place. Reads find what was appended once its append has completed, not before.
    """

    def open(self, topic: str) -> Awaitable[LogState]:
        """Open the log of `topic`, creating it durably when there is none (its ledger was never used before)."""
        ...

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> "Future[AppendResult]":
        """Append `entries` in order, all or none; completes when they are durable.

        Appends to one ledger are stored in the order of the calls, whichever completes first. The producers'
        sequence ids are stored in the same transaction; the highest stays. No entries at all are appended
        where the next would be. Raises STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, TOPIC_NOT_FOUND; then nothing of this call
        is stored, and no other call is the worse for it.
        """
        ...

    def read(self, ledger: int, entry_id: int, entries_max: int, bytes_max: int) -> Awaitable[list[Entry]]:
        """Entries from `entry_id` (or the first there is) on, in order: at least one where there is one, then
        as many as both bounds allow, `bytes_max` counting their data. A store may give fewer, but one."""
        ...

    def find_offset(self, ledger: int, offset: int) -> Awaitable[Entry | None]:
        """The entry that holds `offset`, or the first after it; None past the end. O(log n)."""
        ...

    def find_time(self, ledger: int, publish_time: int) -> Awaitable[Entry | None]:
        """The first entry published at or after `publish_time`; None when all are older.

        It is found by bisection: where publish times are out of order, as producers may set them, it is some
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

    def trim(self, ledger: int, before_entry: int) -> "Future[int]":
        """Let go of the entries before `before_entry`, or of all; ids and offsets go on as if they were there.

        Returns how many bytes of data went."""
        ...

    def forget_producers(self, ledger: int, names: Sequence[str]) -> Awaitable[None]:
        """Forget the sequence ids of producers; what is appended under their names later counts anew."""
        ...

    def delete(self, ledger: int) -> Awaitable[None]:
        """Let go of a log with its cursors; its ledger number is never used again."""
        ...


class CursorChange(msgspec.Struct):
    """What changed in a subscription's cursor since the last save.

    Every message below offset `mark` is acknowledged. Beyond it acknowledged messages are bits: chunk `n`
    covers the offsets `n * 4096 ..`, least significant bit first within a little-endian number; None drops a
    chunk. `properties` None leaves them as they were.
    """

    ledger: int
    subscription: str
    mark: int
    chunks: dict[int, bytes | None]
    properties: bytes | None = None


class CursorStore(Protocol):
    """Durable cursors, one per log and subscription."""

    def load_cursors(self, ledger: int) -> Awaitable[list[CursorChange]]:
        """All cursors of a log, each whole: no chunk is None, and `properties` only when they were never set."""
        ...

    def save_cursors(self, changes: Sequence[CursorChange]) -> Awaitable[None]:
        """Store all changes, in order, or none; completes when they are durable.

        Creates cursors that are not there. Raises TOPIC_NOT_FOUND for an unknown ledger, STORAGE_FULL,
        STORAGE_FAILED.
        """
        ...

    def delete_cursor(self, ledger: int, subscription: str) -> Awaitable[None]:
        """Forget a cursor; nothing happens when there is none."""
        ...


class MetaStore(Protocol):
    """Small durable documents by kind and key: namespaces, topics, schemas, policies."""

    def load_meta(self, kind: str) -> Awaitable[dict[str, bytes]]:
        """All documents of a kind."""
        ...

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> Awaitable[None]:
        """Store `(kind, key, document)` each, in order, all or none; None deletes. Completes when durable."""
        ...


class StageStore(Protocol):
    """Entries that are kept apart, seen by nobody, until a commit appends them to their logs all at once."""

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> "Future[None]":
        """Keep a part of a stage, all or none; completes when it is durable. A part comes once.

        Raises STORAGE_FULL, STORAGE_FAILED, UNAVAILABLE, and TOPIC_NOT_FOUND for a log that is not there.
        """
        ...

    def load_stages(self) -> Awaitable[tuple[list[StagedRun], list[Writer]]]:
        """What is staged, and the writers that staged it."""
        ...

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
        """Keep `commit`, a last commit with the stages of a repeat, and let go of `keys`; in one transaction."""
        ...

    def drop_stages(self, keys: Sequence[StageKey]) -> Awaitable[None]:
        """Let go of stages; those that are not there are none the worse."""
        ...

    def find_commit(self, writer: str, topics: Targets) -> Awaitable[Commit | None]:
        """A writer's last commit to these topics; without one, that before commits named their topics."""
        ...

    def save_writer(self, writer: Writer, writers_max: int = 0) -> "Future[bool]":
        """Store a writer, durably, before what it stages; its `keep` stays once it is set.

        False, and nothing is stored, where it is new and its origin has `writers_max` writers (0: any number).
        """
        ...

    def find_writer(self, name: str) -> Awaitable[Writer | None]:
        """A writer by its name."""
        ...

    def list_targets(self, writer: str) -> Awaitable[list[Target]]:
        """The last commits of a writer, by their topics."""
        ...

    def list_writers(self, after: str, owner: str | None, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers in the order of their names, beginning behind `after`; of one owner unless that is None."""
        ...

    def idle_writers(self, keep: bool, before: int, writers_max: int) -> Awaitable[list[Writer]]:
        """Writers with this `keep` whose time is not after `before`, the oldest first; none with stages."""
        ...

    def forget_writers(self, names: Sequence[str]) -> Awaitable[None]:
        """Forget writers with all their commits; what they have staged stays."""
        ...

    def forget_commit(self, writer: str, topics: Targets) -> Awaitable[bool]:
        """Forget what `find_commit` finds, for these topics alone; False where that is nothing."""
        ...


class Store(Log, CursorStore, MetaStore, StageStore, Protocol):
    """A log backend: the four ports over one storage.

    A store that may fail for its disk's sake has a `health`, a `StorageHealth` that it reports to.
    """

    def start(self) -> Awaitable[None]:
        """Open the storage; nothing else may be called before.

        Raises UNAVAILABLE when another server has it, when it is of a newer version, or when it is damaged.
        """
        ...

    def close(self) -> Awaitable[None]:
        """Finish what was asked for and let go of the storage; calls that come later raise UNAVAILABLE.

        To close again does nothing.
        """
        ...


class EntryFormat(Protocol):
    """How messages become an entry's bytes and come back (implemented by `wire`)."""

    def encode(
        self,
        messages: Sequence[OutMessage],
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """One entry of all `messages`: alone when there is one of them, else a batch.

        Message i gets its own sequence id, or `sequence_id + i`. Delayed messages must come alone.
        """
        ...

    def encode_plain(
        self,
        payloads: Sequence[bytes],
        *,
        producer: str,
        sequence_id: int,
        publish_time: int,
        schema_version: int | None,
    ) -> NewEntry:
        """`encode` of messages that are nothing but payloads, faster."""
        ...

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry. Raises CHECKSUM or BAD_ENCODING when it cannot be understood; an
        encrypted or chunk entry is one message with its payload as it is."""
        ...

    def keys(self, entry: Entry) -> list[bytes]:
        """For each message what Key_Shared hashes: its ordering key, else its key (decoded where base64), else
        `{producer}-{sequence id}`; of an entry that cannot be opened, the entry's own for all."""
        ...

    def changes(self, entry: Entry) -> list[tuple[bytes | None, bool]] | None:
        """For each message its key, None without one, and whether it deletes the key (compaction); None for an
        entry that only stays or goes as a whole."""
        ...


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Make the call not come; harmless after it came."""
        ...


class Clock(Protocol):
    """Time; tests turn it."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that never goes back, ms."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop after `delay_ms`."""
        ...
