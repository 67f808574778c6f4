"""Documents that cannot be read: what holds instead, and that all others count."""

import logging

import msgspec
import pytest
from tests.unit.engines.core.brokers import bench

from penstock.broker.namespaces import TenantInfo
from penstock.engines.memory import MemoryStore
from penstock.engines.registry import namespaces, policies, schemas
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies, Retention, TopicPolicies
from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.protocols.auth.permissions import PRODUCE, Permissions
from penstock.runtime.failures import FailureKind, Failures
from penstock.testing.clock import ManualClock

pytestmark = pytest.mark.anyio

SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName.parse("persistent://acme/shop/orders")
TOPIC = TopicName.parse("t")


def _granted(**roles: tuple[str, ...]) -> bytes:
    return msgspec.json.encode(NamespacePolicies(permissions=roles))


async def _loaded(failures: Failures, *documents: tuple[str, str, bytes]) -> Namespaces:
    store = MemoryStore()
    await store.save_meta(documents)
    made = Namespaces(store, reader=DocumentReader(failures))
    await made.load()
    return made


@pytest.mark.parametrize("broken", [b"{", b'{"permissions": 3}', b"\xff", b""])
async def test_a_namespace_that_cannot_be_read_grants_nothing(
    broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures(ManualClock())
    reader = DocumentReader(failures)
    found = await _loaded(failures, (namespaces.KIND, "acme/shop", _granted(mary=(PRODUCE,))))
    permissions = Permissions(found, ["admin"])
    assert permissions.may("mary", PRODUCE, ORDERS)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            reader.read(namespaces.KIND, "acme/shop", broken, found.learned)
        assert not permissions.may("mary", PRODUCE, ORDERS)
        assert permissions.may("admin", PRODUCE, ORDERS)
        (failure,) = failures.ongoing
        assert (failure.kind, failure.subject, failure.count) == (
            FailureKind.DOCUMENT,
            "namespace acme/shop",
            2,
        )
        reader.read(namespaces.KIND, "acme/shop", _granted(tom=(PRODUCE,)), found.learned)
    assert permissions.may("tom", PRODUCE, ORDERS)
    assert not permissions.may("mary", PRODUCE, ORDERS)
    assert [record.getMessage() for record in caplog.records] == [
        "a stored document cannot be read",
        "the document can be read again",
    ]


async def test_what_was_never_read_grants_nothing_deletes_nothing_and_is_not_in_the_way() -> None:
    failures = Failures(ManualClock())
    found = await _loaded(
        failures,
        (namespaces.KIND, "acme/shop", b"broken"),
        (namespaces.KIND, "not a name", b"{}"),
        (namespaces.KIND, "other/ns", _granted(mary=(PRODUCE,))),
        (namespaces.TENANT, "acme", b"[]"),
        (namespaces.TENANT, "other", msgspec.json.encode(TenantInfo(("tom",)))),
    )
    assert found.all() == sorted([*namespaces.ALWAYS, SHOP, NamespaceName("other", "ns")])
    assert found.policies(SHOP).retention == Retention()
    assert "tom" not in found.tenants["acme"].admin_roles
    assert "tom" in found.tenants["other"].admin_roles
    assert len(failures.ongoing) == 3


async def test_a_tenant_that_cannot_be_read_has_no_administrators() -> None:
    failures = Failures(ManualClock())
    found = await _loaded(failures, (namespaces.TENANT, "acme", msgspec.json.encode(TenantInfo(("tom",)))))
    heard: list[bool] = []
    found.listeners.append(lambda: heard.append("tom" in found.tenants["acme"].admin_roles))
    assert "tom" in found.tenants["acme"].admin_roles
    DocumentReader(failures).read(namespaces.TENANT, "acme", b"?", found.learned_tenant)
    assert heard == [False]


async def test_a_store_with_broken_documents_starts_and_says_so() -> None:
    store = MemoryStore()
    async with bench(store=store) as b:
        await b.publish(b"kept")
        await b.broker.policies.change_topic(TOPIC, lambda _: TopicPolicies(retention=Retention(0, 0)))
        await b.broker.schemas.get_or_create(TOPIC, STRING_SCHEMA)
        await b.broker.topics.create(TopicName.parse("lost"), 3)
    await store.save_meta(
        [
            (policies.KIND, str(TOPIC), b"broken"),
            (schemas.KIND, f"{schemas.schema_id(TOPIC)}\0{0:010}", b"broken"),
            ("topic", "persistent://public/default/lost", b"broken"),
            ("epoch", str(TOPIC), b"one"),
            ("compaction", f"{TOPIC}\0horizon", b"far"),
            (namespaces.KIND, str(DEFAULT_NAMESPACE), b"broken"),
        ]
    )
    async with bench(store=store) as b:
        broker = b.broker
        assert len(broker.failures.ongoing) == 6
        assert broker.policies.in_force(TOPIC).retains_all
        assert await b.payloads(await b.consumer()) == [b"kept"]
        with pytest.raises(PenstockError) as refused:
            broker.schemas.version(TOPIC, 0)
        assert "cannot be read" in refused.value.message
        other = SchemaInfo(SchemaType.INT64)
        assert await broker.schemas.get_or_create(TOPIC, other) == 1  # number 0 stays taken
        for create in (
            broker.topics.create(TopicName.parse("lost"), 1),
            b.publish(b"x", topic=TopicName.parse("lost")),
        ):
            with pytest.raises(PenstockError) as refused:
                await create
            assert refused.value.kind is ErrorKind.UNAVAILABLE
