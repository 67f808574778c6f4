"""What the engine asks of the world: a store for entries, cursors and metadata.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from penstock.broker.topic import MetaStore
from penstock.engines.subscription.store import CursorChange

from .batches import Batches
from .log import Log, LogSearch, LogState
from .stages import CommitStore, StageStore, WriterStore
from .store import CursorStore, Store

__all__ = [
    "Batches",
    "CommitStore",
    "CursorChange",
    "CursorStore",
    "Log",
    "LogSearch",
    "LogState",
    "MetaStore",
    "StageStore",
    "Store",
    "WriterStore",
]
