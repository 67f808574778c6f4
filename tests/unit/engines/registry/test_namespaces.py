"""Which namespaces exist: those that were created, those that always do, and those of topics that are stored."""

import pytest
from tests.unit.engines.core.brokers import bench

from penstock.broker.namespaces import TenantInfo
from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.engines.registry.namespaces import Namespaces
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NamespaceName, TopicName
from penstock.model.policy import ConsumerOptions, DeadLetter, NamespacePolicies, SubscriptionType

pytestmark = pytest.mark.anyio

SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName.parse("persistent://acme/shop/orders")


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_topic_needs_its_namespace(domain: str) -> None:
    async with bench() as b:
        orders = TopicName.of(domain, "acme", "shop", "orders")
        for create in (None, False):
            with pytest.raises(PenstockError) as refused:
                await b.broker.topics.get(orders, create=create)
            assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND
            assert "there is no namespace acme/shop" in refused.value.message
        with pytest.raises(PenstockError) as refused:
            await b.broker.topics.create(orders, 0)
        assert refused.value.kind is ErrorKind.NAMESPACE_NOT_FOUND
        assert b.broker.topics.all_names() == []
        assert b.broker.namespaces.all() == sorted([DEFAULT_NAMESPACE, SYSTEM_NAMESPACE])

        await b.broker.namespaces.set_tenant("acme", TenantInfo(), new=True)
        await b.broker.namespaces.create(SHOP)
        await b.publish(b"tea", topic=orders)
        await b.broker.administration.delete_namespace(SHOP, force=True)
        with pytest.raises(PenstockError):
            await b.publish(b"tea", topic=orders)


async def test_a_namespace_needs_its_tenant() -> None:
    for auto_create in (False, True):
        namespaces = Namespaces(MemoryStore(), auto_create=auto_create)
        await namespaces.load()
        if not auto_create:
            with pytest.raises(PenstockError) as refused:
                await namespaces.create(SHOP)
            assert refused.value.kind is ErrorKind.NOT_FOUND
            assert refused.value.message == "tenant acme does not exist"
        else:
            await namespaces.create(SHOP)
        assert ("acme" in namespaces.tenants) is auto_create


async def test_created_on_the_way_it_stays() -> None:
    store = MemoryStore()
    async with bench(BrokerSettings(auto_create_namespaces=True), store) as b:
        await b.publish(b"tea", topic=ORDERS)
    async with bench(store=store) as b:
        assert b.broker.namespaces.exists(SHOP)
        await b.publish(b"coffee", topic=ORDERS)
        await b.publish(b"milk", topic=ORDERS.sibling("returns"))


async def test_topics_bring_their_namespace_when_a_store_has_it_not() -> None:
    store = MemoryStore()
    async with bench(BrokerSettings(auto_create_namespaces=True), store) as b:
        await b.publish(b"tea", topic=ORDERS)
        await store.save_meta([("namespace", "acme/shop", None), ("tenant", "acme", None)])
    for _ in range(2):
        async with bench(store=store) as b:
            assert b.broker.namespaces.of_tenant("acme") == [SHOP]
            await b.publish(b"coffee", topic=ORDERS.sibling("returns"))


@pytest.mark.parametrize("name", [DEFAULT_NAMESPACE, SYSTEM_NAMESPACE])
async def test_what_always_exists_is_emptied_by_deleting_it(name: NamespaceName) -> None:
    store = MemoryStore()
    topic = TopicName.of("persistent", name.tenant, name.namespace, "t")
    async with bench(store=store) as b:
        await b.broker.namespaces.update(name, NamespacePolicies(deduplication=True))
        await b.publish(b"a", topic=topic)
        with pytest.raises(PenstockError) as refused:
            await b.broker.administration.delete_namespace(name)
        assert refused.value.kind is ErrorKind.NAMESPACE_IN_USE
        await b.broker.administration.delete_namespace(name, force=True)
        assert b.broker.topics.names(name) == []
        assert b.broker.namespaces.policies(name) == NamespacePolicies()
        await b.publish(b"b", topic=topic)
    async with bench(store=store) as b:
        assert b.broker.topics.names(name) == [topic]


@pytest.mark.parametrize("auto_create", [False, True])
async def test_dead_letters_need_a_namespace(auto_create: bool) -> None:
    options = ConsumerOptions(
        type=SubscriptionType.SHARED, dead_letter=DeadLetter(redeliveries_max=1, topic=str(ORDERS))
    )
    async with bench(BrokerSettings(auto_create_namespaces=auto_create)) as b:
        if auto_create:
            await b.broker.subscribe([TopicName.parse("t")], "s", options)
            return
        with pytest.raises(PenstockError) as refused:
            await b.broker.subscribe([TopicName.parse("t")], "s", options)
        assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND
        assert not b.broker.topics.exists(TopicName.parse("t"))
