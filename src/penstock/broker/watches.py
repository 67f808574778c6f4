"""Who is told of a namespace's topics that are created, grow and are deleted."""

from collections.abc import Callable
from typing import Protocol

from penstock.model.names import NamespaceName, TopicName

from .patterns import Pattern


class Watch:
    """One that is told; `told` gets the name of a topic that changed, and looks itself what became of it."""

    __slots__ = ("active", "namespace", "pattern", "told")

    def __init__(self, namespace: NamespaceName, pattern: Pattern, told: Callable[[TopicName], None]) -> None:
        self.namespace = namespace
        self.pattern = pattern
        self.told = told
        self.active = True


class Watches(Protocol):
    """Who is told of a namespace's topics that come, grow and go."""

    def add(self, namespace: NamespaceName, pattern: Pattern, told: Callable[[TopicName], None]) -> Watch:
        """Have `told` called, soon after each change of a topic that matches, until `remove`."""

    def remove(self, watch: Watch) -> None:
        """End a watch."""
