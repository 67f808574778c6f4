"""The cluster and its consumer groups as `broker.ClusterView` shows them: Kafka's own, with topics by their names here."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.broker.cluster_view import ConfigValue, Group, Lag, Member, Nodes, Replicas, Sees
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .cluster import KafkaCluster
from .driver.groups import KnownGroup
from .naming import Naming

DESCRIBED_AT_ONCE: Final = 200  # topics or groups of one request


class KafkaView:
    """`broker.ClusterView`."""

    def __init__(self, cluster: KafkaCluster, naming: Naming) -> None:
        self._cluster = cluster
        self._naming = naming

    async def nodes(self) -> Nodes:
        return await self._cluster.admin.nodes()

    async def replicas(self, topic: TopicName) -> Sequence[Replicas]:
        found = await self._cluster.admin.replicas(self._naming.kafka_name(topic))
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {topic} does not exist")
        return found

    async def configs(self, topics: Sequence[TopicName]) -> Mapping[TopicName, Sequence[ConfigValue]]:
        names = {self._naming.kafka_name(topic): topic for topic in topics}
        parts = await asyncio.gather(*(self._cluster.admin.config_values(part) for part in _parts(names)))
        return {names[name]: values for found in parts for name, values in found.items()}

    async def groups(self, sees: Sees, *, everything: bool) -> Sequence[Group]:
        names = await self._cluster.groups.names()
        parts = await asyncio.gather(*(self._cluster.groups.describe(part) for part in _parts(names)))
        made = [self._group(one, sees) for part in parts for one in part]
        shown = [one for one in made if everything or any(member.partitions for member in one.members)]
        return sorted(shown, key=lambda one: one.id)

    async def group(self, id: str, sees: Sees, *, everything: bool) -> Group | None:
        known = await self._cluster.groups.find(id)
        if known is None:
            return None
        found = self._group(known, sees)
        shown = everything or any(one.partitions for one in found.members) or await self.lags(id, sees)
        return found if shown else None

    def _group(self, known: KnownGroup, sees: Sees) -> Group:
        return Group(
            known.id,
            known.state,
            known.type,
            known.assignor,
            known.is_simple,
            known.coordinator,
            [
                Member(one.id, one.client_id, one.instance_id, self._seen(one.partitions, sees))
                for one in sorted(known.members, key=lambda one: one.id)
            ],
        )

    def _seen(self, places: Sequence[tuple[str, int]], sees: Sees) -> list[tuple[TopicName, int]]:
        named = ((self._naming.topic_name(topic), partition) for topic, partition in places)
        return sorted((topic, partition) for topic, partition in named if topic is not None and sees(topic))

    async def lags(self, group: str, sees: Sees) -> Sequence[Lag]:
        topics = await self._cluster.admin.topics()
        places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
        names = dict(zip(places, map(self._naming.topic_name, (topic for topic, _ in places)), strict=True))
        seen = {place: name for place, name in names.items() if name is not None and sees(name)}
        committed = await self._cluster.groups.committed(group, seen)
        ends = await self._cluster.admin.ends(committed)
        return [Lag(seen[at], at[1], offset, ends[at]) for at, offset in sorted(committed.items())]


def _parts(names: Mapping[str, object] | Sequence[str]) -> list[list[str]]:
    """Names as several requests take them."""
    every = list(names)
    return [every[at : at + DESCRIBED_AT_ONCE] for at in range(0, len(every), DESCRIBED_AT_ONCE)]
