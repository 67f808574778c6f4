"""Durable cursors, and a storage: all the ports that one implementation serves together."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

import msgspec

from penstock.broker.topic import MetaStore

from .log import Log, LogSearch
from .stages import CommitStore, StageStore, WriterStore


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
        """Delete a cursor; nothing happens when there is none."""
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
        """Finish what was asked for and close the storage; calls that come later raise UNAVAILABLE.

        To close again does nothing.
        """
        ...
