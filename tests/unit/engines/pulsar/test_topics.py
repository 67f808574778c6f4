"""Topics before Pulsar: a namespace is listed by partitions, which may be less than all."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import TopicNotFound
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName
from penstock.model.target import Target
from penstock.testing.clock import ManualClock

LEARNED_MS = 100
ORDERS, PLAIN = TopicName.parse("orders"), TopicName.parse("plain")


class _Cluster:
    """A lookup: the partitions of each topic, and the names that are listed."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(lookup=self)
        self.admin = self
        self.refusal: PenstockError | None = None  # of a creation
        self.there: dict[str, int] = {}
        self.names: list[str] = []
        self.asked = 0

    async def partitions(self, topic: str, *, create: bool) -> int:
        self.asked += 1
        if topic not in self.there:
            raise TopicNotFound("gone")
        return self.there[topic]

    async def call(self, method: str, target: Target, *, body: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        return self.names

    async def learn(self, name: NamespaceName) -> None:
        """Namespaces are known."""


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def learned() -> list[TopicName]:
    """The topics whose schemas were learned."""
    return []


@pytest.fixture
def topics(cluster: Any, clock: ManualClock, learned: list[TopicName]) -> PulsarTopics:
    unused: Any = None

    async def learn(name: TopicName) -> None:
        learned.append(name)

    return PulsarTopics(cluster, cluster, clock, unused, LEARNED_MS, learn_schema=learn)


async def test_partitions_are_listed_as_their_topic(topics: PulsarTopics, cluster: _Cluster) -> None:
    odd = TopicName.parse("persistent://public/default/-partition-1")
    partitions = [str(ORDERS.of_partition(number)) for number in (1, 0)]
    cluster.names = [*partitions, str(PLAIN), str(odd), "persistent://public/default/bad\x00name"]
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.names(DEFAULT_NAMESPACE) == [odd, ORDERS, PLAIN]
    assert (topics.partitions(ORDERS), topics.partitions(PLAIN)) == (2, 0)
    assert topics.logs(ORDERS.of_partition(1)) == [ORDERS.of_partition(1)]
    assert not topics.exists(PLAIN.of_partition(0))


async def test_a_listing_takes_no_partition_from_a_topic(
    topics: PulsarTopics, cluster: _Cluster, clock: ManualClock
) -> None:
    cluster.there[str(ORDERS)] = 3
    cluster.names = [str(ORDERS.of_partition(0))]
    await topics.learn(ORDERS)
    clock.turn(LEARNED_MS)
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert topics.partitions(ORDERS) == 3


async def test_a_listed_topic_is_asked_for_when_it_is_used(
    topics: PulsarTopics, cluster: _Cluster, learned: list[TopicName]
) -> None:
    cluster.there[str(PLAIN)] = 0
    cluster.names = [str(PLAIN)]
    await topics.learn_names(DEFAULT_NAMESPACE)
    assert (cluster.asked, learned) == (0, [])
    await topics.learn(PLAIN)
    assert (cluster.asked, learned) == (1, [PLAIN])


async def test_a_process_that_was_quicker_decides_the_number_of_partitions(
    topics: PulsarTopics, cluster: _Cluster
) -> None:
    await topics.create(PLAIN, 2)
    assert (topics.partitions(PLAIN), cluster.asked) == (2, 0)
    cluster.refusal = PenstockError(ErrorKind.ALREADY_EXISTS, "it is there")
    cluster.there[str(ORDERS)] = 3
    await topics.create(ORDERS, 2)
    assert topics.partitions(ORDERS) == 3
