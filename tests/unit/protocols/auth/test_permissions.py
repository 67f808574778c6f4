"""Permissions: what is granted and nothing else."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.namespaces import TenantInfo
from penstock.engines.memory import MemoryStore
from penstock.engines.registry.namespaces import Namespaces
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies
from penstock.protocols.auth.permissions import ACTIONS, ADMIN, CONSUME, PRODUCE, Permissions, check_actions
from penstock.protocols.auth.settings import AuthConfigError

SHOP, BANK = NamespaceName("acme", "shop"), NamespaceName("acme", "bank")
ORDERS = TopicName.parse("persistent://acme/shop/orders")

roles = st.sampled_from(["alice", "bob", "root"])
actions = st.sets(st.sampled_from(ACTIONS)).map(tuple)
topics = st.builds(
    TopicName.of,
    st.sampled_from(["persistent", "non-persistent"]),
    st.just("acme"),
    st.sampled_from(["shop", "bank"]),
    st.sampled_from(["orders", "orders-partition-3", "returns"]),
)


@given(
    in_namespace=st.dictionaries(roles, actions),
    on_topic=st.dictionaries(topics, st.dictionaries(roles, actions), max_size=3),
    configured=st.dictionaries(roles, actions),
    boss=st.booleans(),
    role=st.sampled_from(["alice", "bob", "root", "nobody"]),
    action=st.sampled_from([PRODUCE, CONSUME, ADMIN]),
    topic=topics,
)
def test_as_a_list_of_grants_says(
    in_namespace: dict[str, tuple[str, ...]],
    on_topic: dict[TopicName, dict[str, tuple[str, ...]]],
    configured: dict[str, tuple[str, ...]],
    boss: bool,
    role: str,
    action: str,
    topic: TopicName,
) -> None:
    async def run() -> bool:
        namespaces = Namespaces(MemoryStore())
        permissions = Permissions(namespaces, ["root"], {"acme/shop": configured})
        assert not permissions.may("nobody", action, topic)
        await namespaces.update(
            SHOP,
            NamespacePolicies(
                permissions=in_namespace,
                topic_permissions={str(name.base): by for name, by in on_topic.items()},
            ),
        )
        await namespaces.set_tenant("acme", TenantInfo(("bob",) if boss else ()))
        assert permissions.may(role, action, topic) == permissions.may(role, action, topic)
        return permissions.may(role, action, topic)

    granted: set[str] = set()
    if topic.namespace_name == SHOP:
        granted |= {*in_namespace.get(role, ()), *configured.get(role, ())}
        last = {name.base: by for name, by in on_topic.items()}  # a partition's are its topic's
        granted |= set(last.get(topic.base, {}).get(role, ()))
    expected = role == "root" or (boss and role == "bob") or action in granted or ADMIN in granted
    assert asyncio.run(run()) == expected


async def test_a_change_counts_at_once() -> None:
    namespaces = Namespaces(MemoryStore())
    permissions = Permissions(namespaces)
    assert not permissions.may("alice", CONSUME, ORDERS)
    await namespaces.update(SHOP, NamespacePolicies(permissions={"alice": (CONSUME,)}))
    assert permissions.may("alice", CONSUME, ORDERS)
    assert permissions.knows("alice", SHOP)
    assert not permissions.knows("alice", BANK)
    await namespaces.delete(SHOP)
    assert not permissions.may("alice", CONSUME, ORDERS)
    assert not permissions.knows("alice", SHOP)


async def test_changes_that_come_together_are_all_kept() -> None:
    namespaces = Namespaces(MemoryStore())
    await namespaces.set_tenant(SHOP.tenant, TenantInfo(), new=True)
    await namespaces.create(SHOP)

    async def grant(role: str) -> None:
        def changed(found: NamespacePolicies) -> NamespacePolicies:
            return msgspec.structs.replace(found, permissions={**found.permissions, role: (CONSUME,)})

        await namespaces.change(SHOP, changed)

    await asyncio.gather(*(grant(f"role-{number}") for number in range(20)))
    assert len(namespaces.policies(SHOP).permissions) == 20


def test_actions_by_their_names() -> None:
    assert check_actions(["consume", "produce", "consume"]) == (PRODUCE, CONSUME)
    assert check_actions(["packages", "functions"]) == ("functions", "packages")
    for unknown in ("Produce", "*", "", "write"):
        with pytest.raises(PenstockError) as refused:
            check_actions(["consume", unknown])
        assert refused.value.kind is ErrorKind.BAD_PARAMETER


@pytest.mark.parametrize(
    ("place", "grants", "said"),
    [
        ("public", {}, "tenant/namespace"),
        ("a/b/c/d://", {}, "invalid"),
        ("public/default", {"alice": ["fly"]}, "unknown action 'fly'"),
        ("http://public/default/t", {}, "invalid domain"),
    ],
)
def test_a_configuration_that_cannot_be(place: str, grants: dict[str, list[str]], said: str) -> None:
    with pytest.raises(AuthConfigError, match=said) as refused:
        Permissions(Namespaces(MemoryStore()), (), {place: grants})
    assert str(refused.value).startswith("auth.permissions: ")


def test_a_partition_is_administered_with_its_topic() -> None:
    place = "persistent://acme/shop/orders-partition-1"
    with pytest.raises(AuthConfigError, match="administered with its topic"):
        Permissions(Namespaces(MemoryStore()), (), {place: {"alice": (ADMIN,)}})
    partly = Permissions(Namespaces(MemoryStore()), (), {place: {"alice": (CONSUME,)}})
    assert partly.may("alice", CONSUME, TopicName.parse(place))
    assert not partly.may("alice", CONSUME, ORDERS)


async def test_a_subscription_may_be_left_to_a_few_roles_or_to_those_whose_name_begins_its_own() -> None:
    """The rules are those of Pulsar's brokers."""
    namespaces = Namespaces(MemoryStore())
    permissions = Permissions(namespaces, ["root"])
    await namespaces.set_tenant("acme", TenantInfo(("boss",)), new=True)

    async def users(subscription: str, **policies: Any) -> set[str]:
        await namespaces.update(SHOP, NamespacePolicies(**policies))
        names = ("alice", "bob", "boss", "root")
        return {role for role in names if permissions.may_use_subscription(role, subscription, SHOP)}

    all_of_them, bosses = {"alice", "bob", "boss", "root"}, {"boss", "root"}
    assert await users("s") == all_of_them
    assert await users("s", subscription_roles={"s": ("alice",)}) == {"alice", *bosses}
    assert await users("t", subscription_roles={"s": ("alice",)}) == all_of_them
    assert await users("s", subscription_roles={"s": ()}) == all_of_them
    assert await users("bob-1", subscription_prefix=True) == {"bob", *bosses}
    assert await users("s", subscription_prefix=True) == bosses
    listed = {"bob-1": ("alice",)}
    assert await users("bob-1", subscription_prefix=True, subscription_roles=listed) == bosses
