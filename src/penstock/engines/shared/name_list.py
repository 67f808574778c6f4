"""The topics of one namespace in the order of their names. Pure."""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from penstock.model.names import TopicName

# Within a namespace this is the order of names themselves, and ten times as fast.
_ORDER: Final = attrgetter("domain", "local")


class NameList:
    """Sorted names, and how many logs each has: an insertion or a removal compares a name with some of the others."""

    def __init__(self) -> None:
        self.logs = 0  # of all topics
        self._sorted: list[TopicName] = []
        self._logs: dict[TopicName, int] = {}

    def put(self, name: TopicName, logs: int) -> None:
        """Enter a topic that has so many logs."""
        had = self._logs.get(name)
        if had is None:
            self._sorted.insert(self._index(name), name)
        self._logs[name] = logs
        self.logs += logs - (had or 0)

    def drop(self, name: TopicName) -> None:
        """Remove a topic; nothing if it is not there."""
        had = self._logs.pop(name, None)
        if had is not None:
            self.logs -= had
            del self._sorted[self._index(name)]

    def _index(self, name: TopicName) -> int:
        return bisect_left(self._sorted, _ORDER(name), key=_ORDER)

    def of_domain(self, domain: str | None) -> list[TopicName]:
        """The names of a domain, or all."""
        if domain is None:
            return self._sorted.copy()
        middle = bisect_left(self._sorted, "persistent", key=attrgetter("domain"))
        return self._sorted[middle:] if domain == "persistent" else self._sorted[:middle]

    def __contains__(self, name: TopicName) -> bool:
        return name in self._logs

    def __len__(self) -> int:
        return len(self._sorted)
