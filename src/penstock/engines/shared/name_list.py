"""The names of topics by namespace, in their order, and how many logs each topic has. Pure."""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName

# Within a namespace this is the order of the names themselves, and ten times as fast.
_ORDER: Final = attrgetter("domain", "local")
_DOMAIN: Final = attrgetter("domain")


class _NameList:
    """Of one namespace: an insertion or a removal compares a name with some of the others."""

    def __init__(self) -> None:
        self.sorted: list[TopicName] = []
        self.logs: dict[TopicName, int] = {}
        self.total = 0  # of the logs

    def index(self, name: TopicName) -> int:
        return bisect_left(self.sorted, _ORDER(name), key=_ORDER)


class NameLists:
    """Namespaces without topics take no space."""

    def __init__(self) -> None:
        self._lists: dict[NamespaceName, _NameList] = {}

    def put(self, name: TopicName, logs: int) -> None:
        """Enter a topic that has so many logs."""
        of = self._lists.setdefault(name.namespace_name, _NameList())
        had = of.logs.get(name)
        if had is None:
            of.sorted.insert(of.index(name), name)
        of.logs[name] = logs
        of.total += logs - (had or 0)

    def drop(self, name: TopicName) -> None:
        """Remove a topic; nothing if it is not there."""
        of = self._lists.get(name.namespace_name)
        if of is not None and name in of.logs:
            of.total -= of.logs.pop(name)
            del of.sorted[of.index(name)]
            if not of.logs:
                del self._lists[name.namespace_name]

    def forget(self, namespace: NamespaceName) -> None:
        """Remove all topics of a namespace."""
        self._lists.pop(namespace, None)

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        """The topics of a namespace, or those of one domain."""
        of = self._lists.get(namespace)
        if of is None or domain is None:
            return [] if of is None else of.sorted.copy()
        middle = bisect_left(of.sorted, "persistent", key=_DOMAIN)
        return of.sorted[middle:] if domain == "persistent" else of.sorted[:middle]

    def logs(self, namespace: NamespaceName) -> int:
        """How many logs the topics of a namespace have together."""
        of = self._lists.get(namespace)
        return 0 if of is None else of.total

    def check_room(self, namespace: NamespaceName, logs: int, most: int) -> None:
        """Raise TOO_MANY_TOPICS unless the namespace may have so many logs more; `most` 0: any number."""
        have = self.logs(namespace)
        if 0 < most < have + logs:
            raise PenstockError(
                ErrorKind.TOO_MANY_TOPICS,
                f"namespace {namespace} may have {most} topics, partitions counted each, and has {have}",
            )

    @property
    def namespaces(self) -> list[NamespaceName]:
        return list(self._lists)

    def __contains__(self, name: TopicName) -> bool:
        of = self._lists.get(name.namespace_name)
        return of is not None and name in of.logs


def check_new(name: TopicName, partitions: int, partitions_max: int) -> None:
    """Raise BAD_PARAMETER, INVALID_NAME for a topic that cannot be created."""
    check_partitions(partitions, partitions_max)
    if name.partition >= 0:
        raise PenstockError(
            ErrorKind.INVALID_NAME, "a topic's name can't contain '-partition-' and a number at its end"
        )


def check_partitions(partitions: int, partitions_max: int) -> None:
    """Raise BAD_PARAMETER for more partitions than a topic may have."""
    if not 0 <= partitions <= partitions_max:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"the number of partitions must be within 0 and {partitions_max}"
        )


def check_growth(name: TopicName, have: int, partitions: int) -> None:
    """Raise FEWER_PARTITIONS for a topic that has more."""
    if partitions < have:
        raise PenstockError(ErrorKind.FEWER_PARTITIONS, f"{name} has {have} partitions: they cannot be fewer")
