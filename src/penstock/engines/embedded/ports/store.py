"""A storage: the ports that one implementation serves together."""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from .cursors import CursorStore
from .log import Log
from .stages import StageStore


class MetaStore(Protocol):
    """Small durable documents by kind and key: namespaces, topics, schemas, policies."""

    def load_meta(self, kind: str) -> Awaitable[dict[str, bytes]]:
        """All documents of a kind."""
        ...

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> Awaitable[None]:
        """Store `(kind, key, document)` each, in order, all or none; None deletes. Completes when durable."""
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
