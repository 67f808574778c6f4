"""Tenants and namespaces of the cluster, as far as they were learned: whether they are there, who may do what, and what
is decided for their topics. They are changed through the cluster's own admin REST."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName
from penstock.model.policy import AutoTopics, NamespacePolicies
from penstock.model.schema import Compatibility
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .cluster import PulsarCluster

KNOWN_MAX: Final = 10_000


class _Known(msgspec.Struct, frozen=True):
    """The policies of a namespace, and when they were fetched; without policies it does not exist."""

    at_ms: int
    policies: NamespacePolicies | None


class PulsarNamespaces:
    """`broker.Namespaces`. Where the server may not see policies, it knows of no grants and of no namespace's own settings."""

    def __init__(self, cluster: PulsarCluster, clock: Clock, learned_ms: int) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._cluster = cluster
        self._clock = clock
        self._learned_ms = learned_ms
        self._known: OrderedDict[NamespaceName, _Known] = OrderedDict()
        self.tenants: OrderedDict[str, TenantInfo] = OrderedDict()
        self._locks: Locks[NamespaceName] = Locks()

    def fresh(self, name: NamespaceName) -> bool:
        """Whether a namespace was learned a short while ago."""
        known = self._known.get(name)
        return known is not None and self._clock.monotonic_ms() - known.at_ms < self._learned_ms

    async def learn(self, name: NamespaceName) -> None:
        """Learn a namespace's policies and its tenant's administrators; raises UNAVAILABLE."""
        if self.fresh(name):
            return
        async with self._locks.hold(name):
            if self.fresh(name):
                return
            known = self._known.get(name)  # stays valid until the answers arrive
            before = (None if known is None else known.policies, self.tenants.get(name.tenant))
            policies = await self._ask(Target.of_namespace(name), _policies, NamespacePolicies())
            tenant = await self._ask(Target.of("admin", "v2", "tenants", name.tenant), _tenant, TenantInfo())
            self._known[name] = _Known(self._clock.monotonic_ms(), policies)
            self._known.move_to_end(name)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
            self.tenants.pop(name.tenant, None)
            if tenant is not None:
                self.tenants[name.tenant] = tenant
            if len(self.tenants) > KNOWN_MAX:
                self.tenants.popitem(last=False)
        if known is None or before != (policies, tenant):
            for listener in list(self.listeners):
                listener()

    async def _ask(self, target: Target, read: Callable[[Any], Any], unseen: Any) -> Any:
        """The answer of a target, None if it does not exist, `unseen` if the server may not see it."""
        try:
            return read(await self._cluster.admin.get(target))
        except PenstockError as error:
            if error.kind is ErrorKind.NOT_FOUND:
                return None
            if error.kind is ErrorKind.FORBIDDEN:
                return unseen
            raise

    # -- tenants

    async def set_tenant(self, tenant: str, info: TenantInfo, *, new: bool = False) -> None:
        raise _elsewhere()

    # -- namespaces

    def exists(self, name: NamespaceName) -> bool:
        return self.find(name) is not None

    def find(self, name: NamespaceName) -> NamespacePolicies | None:
        known = self._known.get(name)
        return None if known is None else known.policies

    def policies(self, name: NamespaceName) -> NamespacePolicies:
        found = self.find(name)
        if found is None:
            raise PenstockError(ErrorKind.NAMESPACE_NOT_FOUND, f"namespace {name} does not exist")
        return found

    def check(self, name: NamespaceName) -> None:
        self.policies(name)

    def all(self) -> list[NamespaceName]:
        return sorted(name for name in self._known if self.exists(name))

    async def create(self, name: NamespaceName, policies: NamespacePolicies | None = None) -> None:
        raise _elsewhere()

    async def change(
        self, name: NamespaceName, change: Callable[[NamespacePolicies], NamespacePolicies]
    ) -> None:
        raise _elsewhere()

    def auto(self, name: NamespaceName) -> AutoTopics:
        """Whether the cluster creates topics of a namespace when they are first used."""
        found = self.find(name)
        if found is not None and found.auto_topics is not None:
            return found.auto_topics
        cluster = self._cluster
        if cluster.runtime.get("allowAutoTopicCreationType") == "partitioned":
            return AutoTopics(
                cluster.flag("allowAutoTopicCreation", True), cluster.number("defaultNumPartitions", 1)
            )
        return AutoTopics(cluster.flag("allowAutoTopicCreation", True))


def _tenant(found: Any) -> TenantInfo:
    return TenantInfo(tuple(found.get("adminRoles") or ()))


def _policies(found: Any) -> NamespacePolicies:
    """What the endpoints need of a namespace's policies, from Pulsar's JSON."""
    grants = found.get("auth_policies") or {}
    auto = found.get("autoTopicCreationOverride")
    strategy = str(found.get("schema_compatibility_strategy") or "UNDEFINED")
    return NamespacePolicies(
        schema_compatibility=Compatibility.__members__.get(strategy, Compatibility.UNDEFINED),
        schema_validation_enforced=bool(found.get("schema_validation_enforced")),
        schema_auto_update=found.get("is_allow_auto_update_schema") is not False,
        deduplication=found.get("deduplicationEnabled"),
        auto_topics=None if not auto else _auto(auto),
        permissions=_grants(grants.get("namespace_auth")),
        subscription_roles=_grants(grants.get("subscription_auth_roles")),
        subscription_prefix=found.get("subscription_auth_mode") == "Prefix",
        topic_permissions={
            topic: _grants(roles) for topic, roles in (grants.get("destination_auth") or {}).items()
        },
    )


def _auto(found: Any) -> AutoTopics:
    partitioned = found.get("topicType") == "partitioned"
    return AutoTopics(
        bool(found.get("allowAutoTopicCreation")),
        int(found.get("defaultNumPartitions") or 1) if partitioned else 0,
    )


def _grants(found: Any) -> dict[str, tuple[str, ...]]:
    return {role: tuple(sorted(actions)) for role, actions in (found or {}).items()}


def _elsewhere() -> PenstockError:
    return PenstockError(
        ErrorKind.NOT_SUPPORTED, "tenants and namespaces are changed by the cluster's own admin REST"
    )
