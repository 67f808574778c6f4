"""What is learned of Kafka's topics, and what is told of it."""

from typing import Any

import pytest

from penstock.broker.topic import MetaStore
from penstock.engines.kafka.driver.admin import Described
from penstock.engines.kafka.known import KnownTopics
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.properties import TopicProperties
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.policy import AutoTopics
from penstock.testing.clock import ManualClock

pytestmark = pytest.mark.anyio

ORDERS = TopicName.parse("orders")
LEARNED_MS = 100


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class _Admin:
    """What a cluster has, and how often it was asked."""

    def __init__(self) -> None:
        self.there: dict[str, Described] = {}
        self.asked = self.listed = 0
        self.away = False

    async def describe(self, topic: str) -> Described | None:
        self.asked += 1
        self._check()
        return self.there.get(topic)

    async def topics(self) -> dict[str, int]:
        self.listed += 1
        self._check()
        return {name: one.partitions for name, one in self.there.items()}

    def _check(self) -> None:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")


class _NoDocuments:
    async def load_meta(self, kind: str) -> dict[str, bytes]:
        return {}

    async def save_meta(self, documents: Any) -> None:
        """Nothing is kept."""


class Bench:
    def __init__(self, namespaces: Namespaces, store: MetaStore) -> None:
        self.admin = _Admin()
        self.clock = ManualClock()
        self.gone: list[TopicName] = []
        self.changed: list[TopicName] = []
        admin: Any = self.admin
        self.known = KnownTopics(
            admin,
            Naming({}),
            namespaces,
            TopicProperties(store, DocumentReader()),
            self.clock,
            lambda _: AutoTopics(True),
            LEARNED_MS,
        )
        self.known.gone, self.known.changed = self.gone.append, self.changed.append

    def pass_time(self) -> None:
        self.clock.turn(LEARNED_MS)


@pytest.fixture
async def bench() -> Bench:
    store: MetaStore = _NoDocuments()
    namespaces = Namespaces(store)
    await namespaces.load()
    return Bench(namespaces, store)


async def test_a_topic_is_asked_for_once_in_a_while(bench: Bench) -> None:
    await bench.known.learn(ORDERS)
    assert not bench.known.exists(ORDERS)
    bench.admin.there["orders"] = Described("a", 1)
    await bench.known.learn(ORDERS)
    assert (bench.admin.asked, bench.known.exists(ORDERS)) == (1, False)
    bench.pass_time()
    await bench.known.learn(ORDERS)
    assert bench.known.exists(ORDERS)


async def test_one_partition_is_a_topic_without(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 1)
    first = ORDERS.of_partition(0)
    await bench.known.learn(first)
    assert bench.known.partitions(ORDERS) == 0
    assert bench.known.logs(ORDERS) == bench.known.logs(first) == [ORDERS]
    assert bench.known.exists(first)
    assert not bench.known.exists(ORDERS.of_partition(1))


async def test_a_topic_whose_name_only_looks_like_a_partitions(bench: Bench) -> None:
    name = ORDERS.of_partition(7)
    bench.admin.there["orders-partition-7"] = Described("a", 1)
    await bench.known.learn(name)
    assert bench.known.exists(name)
    assert bench.known.logs(name) == [name]


async def test_who_follows_is_told_what_became_of_a_topic(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 2)
    await bench.known.learn(ORDERS)
    assert (bench.gone, bench.changed) == ([], [])
    for there, gone in (
        (Described("a", 3), []),  # it grew
        (Described("b", 3), [ORDERS]),  # made again
        (Described("b", 3), [ORDERS]),  # the same
    ):
        bench.admin.there["orders"] = there
        bench.pass_time()
        await bench.known.learn(ORDERS)
        assert bench.gone == gone
    assert bench.changed == [ORDERS] * 2
    del bench.admin.there["orders"]
    bench.pass_time()
    await bench.known.learn(ORDERS)
    assert (bench.gone, bench.changed) == ([ORDERS] * 2, [ORDERS] * 3)
    assert not bench.known.exists(ORDERS)


async def test_what_was_learned_counts_while_the_cluster_is_away(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 2)
    await bench.known.learn(ORDERS)
    bench.pass_time()
    bench.admin.away = True
    await bench.known.learn(ORDERS)
    assert bench.known.partitions(ORDERS) == 2
    with pytest.raises(PenstockError) as caught:
        await bench.known.learn(TopicName.parse("others"))
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_a_list_tells_of_topics_that_came_and_grew(bench: Bench) -> None:
    bench.admin.there |= {"orders": Described("a", 1), "__hidden": Described("h", 1)}
    await bench.known.learn_names(DEFAULT_NAMESPACE)
    assert bench.known.names(DEFAULT_NAMESPACE) == [ORDERS]
    assert bench.changed == []  # there were no others to compare with
    await bench.known.learn_names(DEFAULT_NAMESPACE)
    assert bench.admin.listed == 1
    bench.admin.there |= {"orders": Described("a", 3), "new": Described("n", 1)}
    bench.pass_time()
    await bench.known.learn_names(DEFAULT_NAMESPACE)
    assert sorted(bench.changed) == [TopicName.parse("new"), ORDERS]
    assert bench.known.names(DEFAULT_NAMESPACE) == [TopicName.parse("new"), ORDERS]
    assert bench.known.partitions(ORDERS) == 3


async def test_a_topic_that_is_missing_in_a_list_is_asked_for(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 1)
    await bench.known.learn(ORDERS)
    del bench.admin.there["orders"]
    await bench.known.learn_names(DEFAULT_NAMESPACE)
    assert bench.gone == []  # brokers do not hear of all at once
    await bench.known.learn(ORDERS)
    assert bench.gone == [ORDERS]


async def test_a_topic_of_a_namespace_that_is_not_there_is_not_asked_for(bench: Bench) -> None:
    name = TopicName.parse("acme/dev/orders")
    bench.admin.there["acme.dev.orders"] = Described("a", 1)
    await bench.known.learn(name)
    assert (bench.admin.asked, bench.known.exists(name)) == (0, False)
    assert "no namespace acme/dev" in bench.known.missing(name).message
