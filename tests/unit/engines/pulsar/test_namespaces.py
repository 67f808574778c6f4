"""What is known of namespaces while it is learned again."""

import asyncio
from typing import Any, cast

from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.namespaces import PulsarNamespaces
from penstock.model.names import NamespaceName
from penstock.testing.clock import ManualClock, settle

NAME = NamespaceName("public", "default")


class Admin:
    """Answers as the test lets it."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

    async def get(self, path: str) -> Any:
        self.asked += 1
        await self.may_answer.wait()
        return {}


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
    assert namespaces.tenants == ["public"]
    cluster.admin.may_answer.set()
    await learning
    assert namespaces.exists(NAME)
