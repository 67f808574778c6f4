"""Append-only logs of entries, one per topic partition."""

from asyncio import Future
from collections.abc import Awaitable, Sequence
from typing import Protocol

import msgspec

from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError


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


def no_log(ledger: int) -> PenstockError:
    """What a `Log` raises for a ledger that it does not know."""
    return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"there is no log with ledger {ledger}")


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
