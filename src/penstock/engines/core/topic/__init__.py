"""A topic: one log, its producers, and the limits of its policies."""

from .topic import Topic

__all__ = ["Topic"]
