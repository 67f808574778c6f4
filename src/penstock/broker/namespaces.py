"""Tenants, namespaces and the policies of both and of topics."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import InForce, NamespacePolicies, TopicPolicies


class TenantInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored properties of a tenant: the roles that administer everything in it."""

    admin_roles: tuple[str, ...] = ()


def tenant_of(tenants: Mapping[str, TenantInfo], tenant: str) -> TenantInfo:
    """The stored properties of a tenant; raises NOT_FOUND."""
    found = tenants.get(tenant)
    if found is None:
        raise PenstockError(ErrorKind.NOT_FOUND, f"tenant {tenant} does not exist")
    return found


class Namespaces(Protocol):
    """Tenants and their administrators; namespaces with their policies."""

    @property
    def tenants(self) -> Mapping[str, TenantInfo]:
        """The stored properties of each tenant."""

    async def set_tenant(self, tenant: str, info: TenantInfo, *, new: bool = False) -> None:
        """Set the administrators of a tenant, or create a `new` one; raises NOT_FOUND, ALREADY_EXISTS."""

    listeners: list[Callable[[], None]]  # called after a change that may concern permissions

    def policies(self, name: NamespaceName) -> NamespacePolicies:
        """A namespace's policies; raises NAMESPACE_NOT_FOUND."""

    def find(self, name: NamespaceName) -> NamespacePolicies | None:
        """A namespace's policies, None if there is no such namespace."""

    def check(self, name: NamespaceName) -> None:
        """Raise NAMESPACE_NOT_FOUND unless the namespace exists, or is created with its first topic."""

    def all(self) -> list[NamespaceName]:
        """Every namespace, sorted."""

    async def create(self, name: NamespaceName, policies: NamespacePolicies | None = None) -> None:
        """Create a namespace; raises ALREADY_EXISTS, and NOT_FOUND for a tenant that is not there."""

    async def change(
        self, name: NamespaceName, change: Callable[[NamespacePolicies], NamespacePolicies]
    ) -> None:
        """Set policies by what they are now, one change after the other; raises NAMESPACE_NOT_FOUND."""


class Policies(Protocol):
    """What holds for a topic: its own policies before its namespace's before the server's."""

    def of_topic(self, name: TopicName) -> TopicPolicies:
        """The policies set for a topic; a partition has its topic's."""

    def in_force(self, name: TopicName) -> InForce:
        """What holds for a topic."""

    def max_topics(self, name: NamespaceName) -> int:
        """The most logs of a namespace; 0: any number."""

    async def change_topic(self, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies]) -> None:
        """Change the policies set for a topic, given the present ones, durably; `name` is not a partition's."""
