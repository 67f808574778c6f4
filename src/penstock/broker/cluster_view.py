"""A cluster as Kafka's administration describes one: brokers, replicas, configurations, and the consumer groups with their lags."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.model.names import TopicName

NO_MEMBER: Final = ""  # the id of the consumer of a partition that has none

Sees = Callable[[TopicName], bool]


class Node(msgspec.Struct, frozen=True):
    """A broker and its address for clients."""

    id: int
    host: str | None = None
    port: int | None = None


class Nodes(msgspec.Struct, frozen=True):
    """The brokers of a cluster, ordered by their ids."""

    cluster: str  # its id
    brokers: Sequence[Node]
    controller: int | None = None


class Replicas(msgspec.Struct, frozen=True):
    """Which brokers have a partition, and which of them is its leader now."""

    leader: int | None
    brokers: Sequence[int]
    in_sync: Sequence[int]


class ConfigSynonym(msgspec.Struct, frozen=True):
    """The sources of values of a configuration."""

    name: str
    value: str | None
    source: str


class ConfigValue(msgspec.Struct, frozen=True):
    """One value of a topic's configuration; `source` is Kafka's name of its source."""

    name: str
    value: str | None
    source: str = "DEFAULT_CONFIG"
    is_default: bool = True
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: Sequence[ConfigSynonym] = ()


class Member(msgspec.Struct, frozen=True):
    """A consumer of a group, and the partitions that it has, ordered."""

    id: str = NO_MEMBER
    client_id: str = ""
    instance_id: str | None = None
    partitions: Sequence[tuple[TopicName, int]] = ()


class Group(msgspec.Struct, frozen=True):
    """A consumer group. `state` and `type` are Kafka's names in capital letters; `is_simple`: it has no members and only commits."""

    id: str
    state: str
    type: str
    assignor: str = ""
    is_simple: bool = False
    coordinator: int | None = None
    members: Sequence[Member] = ()

    def owners(self) -> Mapping[tuple[TopicName, int], Member]:
        """The consumer of each partition that has one; the first of several."""
        return {place: one for one in reversed(self.members) for place in one.partitions}


class Lag(msgspec.Struct, frozen=True):
    """How far a group is in a partition. `current`: the offset of the next message that it has not committed; `end`: the next
    that the log gives."""

    topic: TopicName
    partition: int
    current: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.current)


class ClusterView(Protocol):
    """Reads of a cluster's description. Topics that a caller does not see are left out of groups. Raises FORBIDDEN, UNAVAILABLE."""

    async def nodes(self) -> Nodes: ...

    async def replicas(self, topic: TopicName) -> Sequence[Replicas]:
        """Those of each partition; raises TOPIC_NOT_FOUND."""

    async def configs(self, topics: Sequence[TopicName]) -> Mapping[TopicName, Sequence[ConfigValue]]:
        """The configurations of topics, each ordered by name; topics that do not exist are left out."""

    async def groups(self, sees: Sees, *, everything: bool) -> Sequence[Group]:
        """The consumer groups, ordered by their ids: those that have partitions of topics that are seen, or `everything`."""

    async def group(self, id: str, sees: Sees, *, everything: bool) -> Group | None:
        """One of `groups`, or one that has positions in topics that are seen; None if it does not exist."""

    async def lags(self, group: str, sees: Sees) -> Sequence[Lag]:
        """How far a group is in each partition that it has a position in."""
