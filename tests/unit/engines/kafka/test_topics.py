"""Topics before Kafka: which names they have here, and what a listing changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.topics import RECENT_MS, KafkaTopics
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.shared.catalog import Described
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.testing.clock import ManualClock

ORDERS = TopicName.parse("orders")
LEARNED_MS = 100


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

    async def create(self, topic: str, partitions: int, replication: int, configs: Any) -> None:
        self.there[topic] = Described("new", partitions)

    def _check(self) -> None:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")


class _NoDocuments:
    def __init__(self) -> None:
        self.reader = DocumentReader()

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        return {}

    async def save_meta(self, documents: Any) -> None:
        """Nothing is kept."""


class Bench:
    def __init__(self, namespaces: Any, documents: Any) -> None:
        self.admin = _Admin()
        self.clock = ManualClock()
        self.changed: list[TopicName] = []
        self.logs_max = 0
        cluster: Any = SimpleNamespace(admin=self.admin, settings=ClusterSettings(learned_ms=LEARNED_MS))
        unused: Any = None
        self.naming = Naming({})
        self.topics = KafkaTopics(
            cluster,
            self.naming,
            namespaces,
            documents,
            unused,
            self.clock,
            BrokerSettings(),
            cast(
                Any,
                SimpleNamespace(
                    auto_topics=lambda _: AutoTopics(True),
                    configs=lambda _: {},
                    max_topics=lambda _: self.logs_max,
                ),
            ),
            None,
        )
        self.topics.listeners.add(self.changed.append)

    def pass_time(self) -> None:
        self.clock.turn(LEARNED_MS)


@pytest.fixture
async def bench() -> Bench:
    documents: Any = _NoDocuments()
    namespaces = Namespaces(documents)
    await namespaces.load()
    return Bench(namespaces, documents)


async def test_one_partition_is_a_topic_without(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 1)
    first = ORDERS.of_partition(0)
    await bench.topics.learn(first)
    assert bench.topics.partitions(ORDERS) == 0
    assert bench.topics.logs(ORDERS) == bench.topics.logs(first) == [ORDERS]
    assert bench.topics.exists(first)
    assert not bench.topics.exists(ORDERS.of_partition(1))


async def test_a_topic_whose_name_only_looks_like_a_partitions(bench: Bench) -> None:
    name = ORDERS.of_partition(7)
    bench.admin.there["orders-partition-7"] = Described("a", 1)
    await bench.topics.learn(name)
    assert bench.topics.exists(name)
    assert bench.topics.logs(name) == [name]


async def test_a_topic_of_a_namespace_that_is_not_there_is_not_asked_for(bench: Bench) -> None:
    name = TopicName.parse("acme/dev/orders")
    bench.admin.there["acme.dev.orders"] = Described("a", 1)
    await bench.topics.learn(name)
    assert (bench.admin.asked, bench.topics.exists(name)) == (0, False)
    assert "no namespace acme/dev" in bench.topics.missing(name).message


async def test_a_topic_that_nobody_uses_is_asked_for_before_it_is_consumed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.topics.look_again(ORDERS)
    assert bench.admin.asked == 0  # it is not known, so it is asked for in any case
    bench.admin.there["orders"] = Described("a", 1)
    await bench.topics.learn(ORDERS)
    bench.admin.there["orders"] = Described("b", 2)
    await bench.topics.learn(ORDERS)  # lately learned
    await bench.topics.look_again(ORDERS)
    assert bench.admin.asked == 1  # it was asked for just now
    bench.clock.turn(RECENT_MS)
    bench.admin.away = True
    await bench.topics.look_again(ORDERS)
    assert bench.topics.found(ORDERS) == Described("a", 1)
    bench.admin.away = False
    used = [SimpleNamespace(has_clients=True)]
    with monkeypatch.context() as patched:
        patched.setattr(bench.topics, "open_of", lambda _: used)
        await bench.topics.look_again(ORDERS)
        assert bench.topics.found(ORDERS) == Described("a", 1)  # its clients are told when it is noticed
    await bench.topics.look_again(ORDERS.of_partition(1))
    assert bench.topics.found(ORDERS) == Described("b", 2)
    del bench.admin.there["orders"]  # a broker may not have heard of it yet
    bench.clock.turn(RECENT_MS)
    await bench.topics.look_again(ORDERS)
    assert bench.topics.exists(ORDERS)


async def test_hidden_topics_have_no_names(bench: Bench) -> None:
    bench.admin.there |= {"orders": Described("a", 3), "__hidden": Described("h", 1)}
    await bench.topics.learn_names(DEFAULT_NAMESPACE)
    assert bench.topics.names(DEFAULT_NAMESPACE) == [ORDERS]
    assert bench.topics.partitions(ORDERS) == 3


async def test_a_new_namespace_takes_over_the_topics_with_its_prefix(bench: Bench) -> None:
    acme = NamespaceName("acme", "dev")
    bench.admin.there |= {"acme.dev.orders": Described("a", 1), "orders": Described("o", 1)}
    await bench.topics.load()
    before, after = TopicName.parse("acme.dev.orders"), TopicName.parse("acme/dev/orders")
    assert bench.topics.names(DEFAULT_NAMESPACE) == [before, ORDERS]
    bench.naming.know((acme,))
    bench.topics.forget_names()
    await bench.topics.learn_names(acme)
    assert bench.topics.names(acme) == [after]
    assert bench.topics.names(DEFAULT_NAMESPACE) == [ORDERS]
    assert (bench.topics.exists(before), bench.topics.exists(after)) == (False, True)
    assert sorted(bench.changed) == [after, before]
    assert bench.admin.listed == 2


async def test_the_logs_of_a_namespace_are_counted_as_topics_come(bench: Bench) -> None:
    bench.admin.there["orders"] = Described("a", 3)
    bench.logs_max = 6
    await bench.topics.load()
    await bench.topics.create(TopicName.parse("one"), 2)
    with pytest.raises(PenstockError) as caught:
        await bench.topics.create(TopicName.parse("two"), 2)
    assert caught.value.kind is ErrorKind.TOO_MANY_TOPICS
    await bench.topics.create(TopicName.parse("two"), 0)
    assert bench.admin.listed == 1
