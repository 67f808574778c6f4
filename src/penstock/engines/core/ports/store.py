"""Durable cursors, and a storage: all the ports that one implementation serves together."""

from collections.abc import Awaitable
from typing import Protocol

from penstock.broker.topic import MetaStore
from penstock.engines.subscription.store import CursorChange, CursorWriter

from .log import Log, LogSearch
from .stages import CommitStore, StageStore, WriterStore


class CursorStore(CursorWriter, Protocol):
    """Durable cursors, one per log and subscription."""

    def load_cursors(self, ledger: int) -> Awaitable[list[CursorChange]]:
        """All cursors of a log, each whole: no chunk is None, and `properties` only when they were never set."""
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
