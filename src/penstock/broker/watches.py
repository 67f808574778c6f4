"""Watches of a namespace's topics: a callback for each that is created, grows or is deleted."""

from collections.abc import Callable
from typing import Protocol

from penstock.model.names import NamespaceName, TopicName

from .patterns import Pattern


class Watch:
    """One watch; `callback` gets the name of a topic that changed, and looks itself what became of it."""

    __slots__ = ("active", "callback", "namespace", "pattern")

    def __init__(
        self, namespace: NamespaceName, pattern: Pattern, callback: Callable[[TopicName], None]
    ) -> None:
        self.namespace = namespace
        self.pattern = pattern
        self.callback = callback
        self.active = True


class Watches(Protocol):
    """The watches of a broker."""

    def add(self, namespace: NamespaceName, pattern: Pattern, callback: Callable[[TopicName], None]) -> Watch:
        """Have `callback` called, soon after each change of a topic that matches, until `remove`."""

    def remove(self, watch: Watch) -> None:
        """End a watch."""
