"""What the engine asks of the world: a store for entries, cursors and metadata, the entries' format, a clock.

Everything here is called on the event loop's thread only, and every awaitable completes there.
"""

from .clock import Clock, Timer
from .cursors import CursorChange, CursorStore
from .entry_format import EntryFormat
from .log import Log, LogState
from .stages import StageStore
from .store import MetaStore, Store

__all__ = [
    "Clock",
    "CursorChange",
    "CursorStore",
    "EntryFormat",
    "Log",
    "LogState",
    "MetaStore",
    "StageStore",
    "Store",
    "Timer",
]
