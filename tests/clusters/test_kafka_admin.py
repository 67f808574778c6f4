"""Topics, namespaces and policies before a real Kafka: what one process changes, Kafka and the others see."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until_async

from penstock.broker.namespaces import TenantInfo
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.policies import retention_of
from penstock.engines.opening import open_kafka
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import ConsumerOptions, Retention, TopicPolicies, TopicRate
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType
from penstock.runtime.clock import LoopClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mark() -> str:
    """A part of names that no other test has."""
    return uuid4().hex[:10]


@pytest.fixture
async def pair(kafka_cluster: KafkaCluster, mark: str) -> AsyncIterator[tuple[KafkaBroker, KafkaBroker]]:
    """Two processes' brokers before one cluster, with documents of their own."""
    settings = ClusterSettings(url=kafka_cluster.service_url, learned_ms=0, documents_topic=f"__{mark}")
    brokers = [KafkaBroker(settings, BrokerSettings(), LoopClock()) for _ in range(2)]
    for broker in brokers:
        await broker.start()
    yield brokers[0], brokers[1]
    for broker in brokers:
        await broker.close()


async def test_a_topic_is_kafkas_for_every_process(pair: tuple[KafkaBroker, KafkaBroker], mark: str) -> None:
    one, other = pair
    name = TopicName.parse(f"t-{mark}")
    await one.topics.create(name, 3)
    assert (await one.kafka.admin.describe(f"t-{mark}")).partitions == 3  # type: ignore[union-attr]
    await other.topics.learn(name)
    assert other.topics.partitions(name) == 3
    logs = [await broker.topics.all_of(name) for broker in pair]
    assert [log.ledger for log in logs[0]] == [log.ledger for log in logs[1]]
    await one.topics.set_partitions(name, 4)
    await other.topics.learn(name)
    assert other.topics.partitions(name) == 4
    with pytest.raises(PenstockError) as caught:
        await other.topics.set_partitions(name, 2)
    assert caught.value.kind is ErrorKind.FEWER_PARTITIONS
    await other.administration.delete_topic(name)
    await one.topics.learn(name)
    assert not one.topics.exists(name)
    assert all(log.deleted for log in logs[0])


async def test_missing_topics_are_told_from_those_that_are_there(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    await pair[0].topics.create(TopicName.parse(f"t-{mark}"), 3)
    asked = [f"t-{mark}", f"missing-{mark}", "not a name"]
    found = await pair[0].kafka.admin.describe_all(asked)
    there = found[f"t-{mark}"]
    assert there is not None
    assert there.partitions == 3
    assert found[f"missing-{mark}"] is None
    assert "not a name" not in found


async def test_a_topic_that_is_made_again_is_another(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    one, other = pair
    name = TopicName.parse(f"t-{mark}")
    await one.topics.create(name, 0)
    before = await other.topics.get(name)
    await one.administration.delete_topic(name)
    await one.topics.create(name, 0)
    after = await other.topics.get(name)
    assert before.deleted
    assert not after.deleted
    assert before.ledger != after.ledger


async def test_partition_0_of_a_topic_without_partitions_is_the_topic(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    name = TopicName.parse(f"t-{mark}")
    await pair[0].topics.create(name, 1)
    topic = await pair[0].topics.get(name.of_partition(0))
    assert topic is await pair[0].topics.get(name)
    with pytest.raises(PenstockError) as caught:
        await pair[0].topics.get(name.of_partition(1))
    assert caught.value.kind is ErrorKind.PARTITION_NOT_FOUND


async def test_topics_that_come_and_go_are_heard_of(pair: tuple[KafkaBroker, KafkaBroker], mark: str) -> None:
    heard: list[TopicName] = []
    pair[1].topics.listeners.add(heard.append)
    name = TopicName.parse(f"t-{mark}")
    await pair[0].topics.create(name, 0)
    await pair[1].topics.list_all()
    assert name in heard
    await pair[1].topics.learn_names(name.namespace_name)
    assert name in pair[1].topics.names(name.namespace_name)
    heard.clear()
    await pair[0].topics.delete(name, force=False)
    async with asyncio.timeout(60):
        while pair[1].topics.exists(name):
            await pair[1].topics.list_all()
    assert heard.count(name) == 1
    assert name not in pair[1].topics.names(name.namespace_name)


async def test_namespaces_and_policies_are_kept_for_every_process(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    one, other = pair
    namespace = NamespaceName(f"t-{mark}", "dev")
    await one.namespaces.set_tenant(namespace.tenant, TenantInfo(), new=True)
    await one.namespaces.create(namespace)
    await until_async(lambda: other.namespaces.exists(namespace))
    name = TopicName.parse(f"{namespace}/orders")
    await one.topics.create(name, 0)
    kafka = f"t-{mark}.dev.orders"
    assert await one.kafka.admin.describe(kafka) is not None
    await other.topics.learn_names(namespace)
    assert other.topics.names(namespace) == [name]

    def kept(policies: Any) -> Any:
        return msgspec.structs.replace(policies, retention=Retention(5, 7))

    await other.namespaces.change(namespace, kept)
    await configured(one, kafka, {"retention.ms": "300000", "retention.bytes": str(7 << 20)})
    await until_async(lambda: one.policies.in_force(name).retention == Retention(5, 7))
    await one.policies.change_topic(name, lambda _: TopicPolicies(compaction_threshold=1))
    await configured(one, kafka, {"cleanup.policy": "compact,delete"})
    await one.administration.delete_namespace(namespace, force=True)
    await until_async(lambda: not other.namespaces.exists(namespace))
    assert await one.kafka.admin.describe(kafka) is None


async def configured(broker: KafkaBroker, kafka: str, wanted: dict[str, str]) -> None:
    """Wait until Kafka shows what a topic is configured to: its controller answers before its brokers know."""
    async with asyncio.timeout(60):
        while not wanted.items() <= (await broker.kafka.admin.configs(kafka)).items():
            await asyncio.sleep(0.01)  # nobody tells


async def test_schemas_and_properties_are_kept_for_every_process_and_the_next(
    pair: tuple[KafkaBroker, KafkaBroker], kafka_cluster: KafkaCluster, mark: str
) -> None:
    one, other = pair
    name = TopicName.parse(f"t-{mark}")
    await one.topics.create(name, 0, {"owner": "me"})
    assert await one.schemas.get_or_create(name, SchemaInfo(SchemaType.STRING)) == 0
    await until_async(lambda: other.schemas.latest(name) is not None)
    again = KafkaBroker(one.kafka.settings, BrokerSettings(), LoopClock())
    await again.start()
    try:
        await again.topics.learn(name)
        document = again.topics.document(name)
        assert document is not None
        assert document.properties == {"owner": "me"}
        found = again.schemas.latest(name)
        assert found is not None
        assert (found.version, found.schema.type) == (0, SchemaType.STRING)
    finally:
        await again.close()


async def test_processes_that_register_schemas_at_once_agree_on_their_versions(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    name = TopicName.parse(f"t-{mark}")

    def change(policies: Any) -> Any:
        return msgspec.structs.replace(policies, schema_compatibility=Compatibility.ALWAYS_COMPATIBLE)

    await pair[0].namespaces.change(name.namespace_name, change)
    await until_async(lambda: pair[1].schemas.strategy(name) is Compatibility.ALWAYS_COMPATIBLE)
    schemas = [SchemaInfo(one) for one in (SchemaType.STRING, SchemaType.INT32, SchemaType.INT64)]
    versions = await asyncio.gather(
        *(broker.schemas.get_or_create(name, schema) for schema in schemas for broker in pair)
    )
    assert versions[0::2] == versions[1::2]
    assert sorted(versions[0::2]) == [0, 1, 2]  # type: ignore[type-var]
    await until_async(lambda: all(len(broker.schemas.all(name)) == 3 for broker in pair))
    assert pair[0].schemas.all(name) == pair[1].schemas.all(name)


async def test_many_changes_at_once_end_the_same_everywhere(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    saves = [
        broker.documents.save_meta([("count", "one", f"{number} {at}".encode())])
        for number in range(20)
        for at, broker in enumerate(pair)
    ]
    await asyncio.gather(*saves)
    await pair[0].documents.save_meta([("count", "end", b"")])
    other = pair[1].documents
    seen: dict[str, bytes] = {}

    async def ended() -> bool:
        seen.update(await other.load_meta("count"))
        return "end" in seen

    while not await ended():
        await asyncio.sleep(0.01)  # each look is a coroutine: nothing to wait for
    assert (await pair[0].documents.load_meta("count"))["one"] == seen["one"]


async def test_a_cluster_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.kafka.cluster.START_S", 0.0)
    monkeypatch.setattr("penstock.engines.kafka.cluster.LOOK_S", 0.5)
    settings = ClusterSettings(url="kafka://127.0.0.1:1")
    with pytest.raises(PenstockError) as caught:
        await open_kafka(settings, BrokerSettings()).start()
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_rates_are_kept_by_each_process(kafka_cluster: KafkaCluster, mark: str) -> None:
    settings = ClusterSettings(url=kafka_cluster.service_url, learned_ms=0, documents_topic=f"__{mark}")
    broker = KafkaBroker(settings, BrokerSettings(quota_hold_ms=10), LoopClock())
    await broker.start()
    try:
        name, rate = TopicName.parse(f"t-{mark}"), TopicRate(messages=1, period_s=86_400)
        await broker.topics.create(name, 0)
        producer = await broker.producer(name)

        async def publish(count: int) -> list[object]:
            return list(await producer.publish([OutMessage(payload=b"m")] * count))

        await broker.policies.change_topic(name, lambda now: TopicPolicies(publish_rate=rate))
        first, second = (await publish(50))[0], (await publish(1))[0]  # what begins within the rate goes
        assert isinstance(first, MessageId)
        assert isinstance(second, PenstockError)
        assert second.kind is ErrorKind.TOO_MANY_REQUESTS
        with pytest.raises(PenstockError):
            await producer.publish_plain([b"m"], None)

        await broker.policies.change_topic(name, lambda now: TopicPolicies(subscription_dispatch_rate=rate))
        assert isinstance((await publish(1))[0], MessageId)
        consumer = await broker.subscribe([name], f"s-{mark}", ConsumerOptions(start=EARLIEST))
        (served,) = (await broker.topics.get(name)).served.values()
        assert served.throttle is not None
        throttle = served.throttle
        await until_async(lambda: throttle.wait_ms() > 1000)
        assert len(consumer.outbox) < 51
        await broker.policies.change_topic(name, lambda now: TopicPolicies())
        await until_async(lambda: len(consumer.outbox) == 51)
    finally:
        await broker.close()


async def test_the_retention_in_force_is_kafkas_where_no_policy_says_another(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    one, _ = pair
    name = TopicName.parse(f"t-{mark}")
    await one.topics.create(name, 0)
    configs = await one.kafka.admin.configs(f"t-{mark}")
    assert one.policies.in_force(name).retention == retention_of(configs)
    await one.policies.change_topic(name, lambda now: TopicPolicies(retention=Retention(5, 6)))
    assert one.policies.in_force(name).retention == Retention(5, 6)


async def test_of_namespaces_that_would_share_topics_one_is_created(
    pair: tuple[KafkaBroker, KafkaBroker], mark: str
) -> None:
    one, other = pair
    names = NamespaceName(mark, "b.c"), NamespaceName(f"{mark}.b", "c")
    for name in names:
        await one.namespaces.set_tenant(name.tenant, TenantInfo(), new=True)
    await until_async(lambda: {name.tenant for name in names} <= set(other.namespaces.tenants))
    results = await asyncio.gather(
        one.namespaces.create(names[0]), other.namespaces.create(names[1]), return_exceptions=True
    )
    (refused,) = [result for result in results if result is not None]
    assert isinstance(refused, PenstockError)
    assert refused.kind is ErrorKind.BAD_PARAMETER
    await one.documents.catch_up()
    await other.documents.catch_up()
    there = [[name for name in names if broker.namespaces.exists(name)] for broker in pair]
    assert there[0] == there[1] == [names[results.index(None)]]
