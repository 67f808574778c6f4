"""The parts of the contract that the cluster's own interfaces have, or that need more than this cluster offers."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from penstock.broker.capability import Capability
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import InForce, NamespacePolicies, TopicPolicies


def refuse(what: str) -> PenstockError:
    """The error of what the engine does not have."""
    return PenstockError(ErrorKind.NOT_SUPPORTED, f"the engine behind this server has no {what}")


class NoAdministration:
    """`broker.Administration`: requests are passed on to the cluster's admin REST instead."""

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        raise refuse("administration of topics")

    async def unload_topic(self, name: TopicName) -> None:
        raise refuse("administration of topics")

    async def truncate_topic(self, name: TopicName) -> None:
        raise refuse("administration of topics")

    async def trim_topic(self, name: TopicName) -> None:
        raise refuse("administration of topics")

    async def compact_topic(self, name: TopicName) -> None:
        raise refuse(Capability.COMPACTION.value)

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        raise refuse("administration of namespaces")

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        raise refuse("administration of tenants")


class NoStaging:
    """`broker.Staging`, but for `append`."""

    def batches(self, writer: str) -> Mapping[int, Any]:
        return {}

    def size_of(self, writer: str) -> int:
        return 0

    async def writers(self, *_: Any) -> NoReturn:
        raise refuse(Capability.STAGED_PUBLISH.value)

    async def writer(self, *_: Any) -> NoReturn:
        raise refuse(Capability.STAGED_PUBLISH.value)

    async def forget(self, *_: Any, **__: Any) -> None:
        raise refuse(Capability.STAGED_PUBLISH.value)

    async def stage(self, *_: Any) -> None:
        raise refuse(Capability.STAGED_PUBLISH.value)

    async def commit(self, *_: Any, **__: Any) -> NoReturn:
        raise refuse(Capability.STAGED_PUBLISH.value)

    async def abort(self, *_: Any) -> NoReturn:
        raise refuse(Capability.STAGED_PUBLISH.value)


class ClusterPolicies:
    """`broker.Policies`: what counts here; the cluster's own are changed by its admin REST."""

    def __init__(self, in_force: Callable[[TopicName], InForce]) -> None:
        self.in_force = in_force

    def of_topic(self, name: TopicName) -> TopicPolicies:
        return NamespacePolicies()

    def max_topics(self, name: NamespaceName) -> int:
        return 0

    async def change_topic(self, name: TopicName, change: Any) -> None:
        raise refuse("policies of its own")

    async def forget(self, name: TopicName) -> None:
        raise refuse("policies of its own")


class NoWatches:
    """`broker.Watches`: clients of Pulsar's protocol are the cluster's."""

    def add(self, namespace: NamespaceName, pattern: Any, callback: Any) -> NoReturn:
        raise refuse("watches of topics")

    def remove(self, watch: object) -> None:
        """There is none."""
