"""A store in memory: for tests, and for topics that promise nothing beyond the process."""

from .store import MemoryStore

__all__ = ["MemoryStore"]
