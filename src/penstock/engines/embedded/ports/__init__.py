"""What the engine asks of the world: a store for entries, cursors and metadata, the entries' format, a clock.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from .clock import Clock, Timer
from .entry_format import EntryFormat
from .log import Log, LogSearch, LogState
from .stages import CommitStore, StageStore, WriterStore
from .store import CursorChange, CursorStore, MetaStore, Store

__all__ = [
    "Clock",
    "CommitStore",
    "CursorChange",
    "CursorStore",
    "EntryFormat",
    "Log",
    "LogSearch",
    "LogState",
    "MetaStore",
    "StageStore",
    "Store",
    "Timer",
    "WriterStore",
]
