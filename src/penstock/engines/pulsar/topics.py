"""The tenants, namespaces and topics of a Pulsar cluster, as far as this process learned of them, and the topics that it uses.

Tenants and namespaces are changed through the cluster's own admin REST.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo
from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.engines.attached.errors import own_error
from penstock.engines.shared.catalog import NO_TOPICS, Catalog, Described
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import PARTITION_SUFFIX, NamespaceName, TopicName, partition_of
from penstock.model.policy import AutoTopics, InForce, NamespacePolicies
from penstock.model.schema import Compatibility
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks, Slices

from .cluster import PulsarCluster
from .topic import PulsarTopic

KNOWN_MAX: Final = 10_000


class _Known(msgspec.Struct, frozen=True):
    """The policies of a namespace, and when they were fetched; without policies it does not exist."""

    at_ms: int
    policies: NamespacePolicies | None


class PulsarNamespaces:
    """`broker.Namespaces`. If the server may not see policies, it knows of no grants and of no namespace's own settings."""

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


class PulsarTopics(Catalog[PulsarTopic]):
    """`broker.Topics`. `learn_schema` is called with each topic that is learned. `recheck_missing`: a topic that was missing is
    looked up each time, as another process may just have created it."""

    tail_bytes = 0
    unpartitioned = 0
    lists_all = False

    def __init__(
        self,
        cluster: PulsarCluster,
        namespaces: PulsarNamespaces,
        clock: Clock,
        policies: Callable[[TopicName], InForce],
        learned_ms: int,
        *,
        learn_schema: Callable[[TopicName], Awaitable[None]],
        recheck_missing: bool = False,
    ) -> None:
        super().__init__(namespaces, clock, learned_ms)
        self._learn_schema = learn_schema
        self._recheck_missing = recheck_missing
        self._cluster = cluster
        self._spaces = namespaces
        self._policies = policies

    def fresh(self, name: TopicName) -> bool:
        return super().fresh(name) and (not self._recheck_missing or self.document(name) is not None)

    def appeared(self, name: TopicName, partitions: int) -> None:
        """The cluster has just created a topic, as it was used."""
        self.put(name, Described("", partitions))

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self._spaces.exists(name.namespace_name):
            return NO_TOPICS
        return self._spaces.auto(name.namespace_name)

    # -- asking the cluster

    async def _describe(self, name: TopicName) -> Described | None:
        await self._spaces.learn(name.namespace_name)
        partitions = await self._partitions_now(name)
        return None if partitions is None else Described("", partitions)

    async def _partitions_now(self, name: TopicName) -> int | None:
        """The number of partitions of a topic in the cluster; None if the topic does not exist."""
        try:
            return await self._cluster.context.lookup.partitions(str(name), create=False)
        except TopicNotFound:
            return None
        except PulsarException as error:
            raise own_error(error) from None

    async def _list(self, namespace: NamespaceName | None) -> Mapping[str, int]:
        assert namespace is not None
        await self._spaces.learn(namespace)
        try:
            found = await self._cluster.context.lookup.topics(str(namespace), RegexSubscriptionMode.AllTopics)
        except PulsarException as error:
            raise own_error(error) from None
        listed: dict[str, int] = {}
        slices = Slices()
        for text in found:
            await slices.step()
            base, count = _counted(text)
            listed[base] = max(count, listed.get(base, 0))
        return listed

    def _name_of(self, text: str) -> TopicName | None:
        return TopicName.parse_known(text)

    async def _learn_more(self, name: TopicName) -> None:
        await self._learn_schema(name)

    async def _new(self, name: TopicName) -> PulsarTopic:
        return PulsarTopic(name, self._cluster, self._clock, self._policies(name))

    # -- changing which there are

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        admin, shared = self._cluster.admin, self._recheck_missing
        try:
            if partitions:
                await admin.call("PUT", Target.of_topic(name, "partitions"), body=partitions)
            elif name.persistent:
                await admin.call("PUT", Target.of_topic(name), body=properties)
        except PenstockError as error:
            # Another server, or a client of the cluster, was quicker; or only brokers may: then they do, as it is used.
            if error.kind not in (ErrorKind.ALREADY_EXISTS, ErrorKind.FORBIDDEN):
                raise
            shared = True
        if shared and (found := await self._partitions_now(name)) is not None:
            partitions = found  # another process decided the number
        self.appeared(name, partitions)

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        raise PenstockError(
            ErrorKind.NOT_SUPPORTED, "properties of topics are changed by the cluster's own admin REST"
        )

    async def terminate(self, name: TopicName) -> Sequence[PulsarTopic]:
        logs = await self.all_of(name, create=False)
        parts = ("partitions",) if self.partitions(name) else ()
        target = Target.of_topic(name, "terminate", *parts)
        await self._cluster.admin.call("POST", target, missing=ErrorKind.TOPIC_NOT_FOUND)
        for log in logs:
            log.terminated = True
        return logs


def _counted(text: str) -> tuple[str, int]:
    """The topic of a listed name, and how many partitions the name shows: 0 unless it is a partition's."""
    number = partition_of(text.split("/", 4)[-1])
    return (text[: text.rindex(PARTITION_SUFFIX)], number + 1) if number >= 0 else (text, 0)
