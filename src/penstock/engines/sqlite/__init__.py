"""The durable store: one SQLite file, one thread that writes, a few that read."""

from .store import SqliteStore

__all__ = ["SqliteStore"]
