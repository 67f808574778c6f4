"""Listeners for topics that are created, grow or are deleted."""

from collections.abc import Callable, Iterable

from penstock.model.names import TopicName

Listener = Callable[[TopicName], None]


class TopicListeners:
    """A listener of certain topics costs nothing when others change."""

    def __init__(self) -> None:
        self._all: dict[Listener, None] = {}  # in their order
        self._of: dict[TopicName, dict[Listener, None]] = {}

    def add(self, listener: Listener, topics: Iterable[TopicName] | None = None) -> None:
        """Have it called with each topic that changes, or if one of `topics` does."""
        if topics is None:
            self._all[listener] = None
        else:
            for name in topics:
                self._of.setdefault(name, {})[listener] = None

    def discard(self, listener: Listener, topics: Iterable[TopicName] | None = None) -> None:
        """Call it no more; `topics` as they were added. Harmless when repeated."""
        if topics is None:
            self._all.pop(listener, None)
            return
        for name in topics:
            if (found := self._of.get(name)) is not None:
                found.pop(listener, None)
                if not found:
                    del self._of[name]

    def tell(self, name: TopicName) -> None:
        """A topic was created, grew or was deleted."""
        for listener in (*self._all, *self._of.get(name, ())):
            listener(name)
