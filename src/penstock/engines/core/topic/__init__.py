"""A topic: one log, who publishes to it, and what its policies bound."""

from .topic import Topic

__all__ = ["Topic"]
