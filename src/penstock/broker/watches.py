"""Watches of a namespace's topics: a callback for each that is created, grows or is deleted."""

from collections.abc import Callable

from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.patterns import Pattern


class Watch:
    """One watch; `callback` gets the name of a topic that changed, and looks itself what became of it."""

    __slots__ = ("_remove", "active", "callback", "namespace", "pattern")

    def __init__(
        self,
        namespace: NamespaceName,
        pattern: Pattern,
        callback: Callable[[TopicName], None],
        remove: Callable[["Watch"], None],
    ) -> None:
        self.namespace = namespace
        self.pattern = pattern
        self.callback = callback
        self.active = True
        self._remove = remove

    def close(self) -> None:
        """Call it no more."""
        if self.active:
            self.active = False
            self.callback = _nothing  # it mostly knows the watch: no circle is left to the collector
            self._remove(self)


def _nothing(name: TopicName) -> None:
    """The watch has ended."""


# Has a callback called soon after each change of a topic that matches, until the watch is closed.
WatchTopics = Callable[[NamespaceName, Pattern, Callable[[TopicName], None]], Watch]
