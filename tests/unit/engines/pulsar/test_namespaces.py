"""What is known of namespaces while it is learned again."""

import asyncio
from typing import Any, cast

from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.topics import PulsarNamespaces
from penstock.model.names import NamespaceName
from penstock.model.target import Target
from penstock.testing.clock import ManualClock, settle

NAME = NamespaceName("public", "default")


class Admin:
    """Answers as the test lets it."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0
        self.answers: dict[str, Any] = {}

    async def get(self, target: Target) -> Any:
        self.asked += 1
        await self.may_answer.wait()
        return self.answers.get(target.path, {})


class Cluster:
    def __init__(self) -> None:
        self.admin = Admin()


async def test_a_namespace_is_there_while_it_is_learned_again() -> None:
    cluster, clock = Cluster(), ManualClock()
    namespaces = PulsarNamespaces(cast(PulsarCluster, cluster), clock, 1000)
    await namespaces.learn(NAME)
    await namespaces.learn(NAME)
    assert cluster.admin.asked == 2  # the namespace and its tenant, once
    clock.turn(1000)
    cluster.admin.may_answer.clear()
    learning = asyncio.gather(namespaces.learn(NAME))
    await settle()
    assert cluster.admin.asked == 3
    assert namespaces.exists(NAME)
    assert list(namespaces.tenants) == ["public"]
    cluster.admin.may_answer.set()
    await learning
    assert namespaces.exists(NAME)


async def test_administrators_are_those_that_were_learned_last() -> None:
    """Whichever namespace of the tenant they were learned with."""
    cluster, clock = Cluster(), ManualClock()
    namespaces = PulsarNamespaces(cast(PulsarCluster, cluster), clock, 1000)
    tenant = "/admin/v2/tenants/public"
    cluster.admin.answers[tenant] = {"adminRoles": ["boss"]}
    await namespaces.learn(NAME)
    assert "boss" in namespaces.tenants["public"].admin_roles
    cluster.admin.answers[tenant] = {"adminRoles": ["chief"]}
    await namespaces.learn(NamespaceName("public", "another"))
    assert "boss" not in namespaces.tenants["public"].admin_roles
    assert "chief" in namespaces.tenants["public"].admin_roles


async def test_permissions_of_subscriptions_are_learned() -> None:
    cluster = Cluster()
    namespaces = PulsarNamespaces(cast(PulsarCluster, cluster), ManualClock(), 1000)
    cluster.admin.answers["/admin/v2/namespaces/public/default"] = {
        "auth_policies": {"subscription_auth_roles": {"s": ["b", "a"]}},
        "subscription_auth_mode": "Prefix",
    }
    await namespaces.learn(NAME)
    policies = namespaces.policies(NAME)
    assert policies.subscription_roles == {"s": ("a", "b")}
    assert policies.subscription_prefix
