"""What the engine asks of the world: a store for entries, cursors and metadata.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from .cursors import CursorChange, CursorStore
from .log import Log, LogState
from .stages import StageStore
from .store import MetaStore, Store

__all__ = [
    "CursorChange",
    "CursorStore",
    "Log",
    "LogState",
    "MetaStore",
    "StageStore",
    "Store",
]
