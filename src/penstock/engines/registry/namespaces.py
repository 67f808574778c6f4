"""Tenants and namespaces, with their policies."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.namespaces import TenantInfo, tenant_of
from penstock.broker.topic import MetaStore
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NamespaceName, TopicName, check_entity
from penstock.model.policy import NamespacePolicies, Quota, Retention

KIND: Final = "namespace"
TENANT: Final = "tenant"

ALWAYS: Final = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)  # exist without being created
# The policies of a namespace whose document was never read: only superusers may use it, and all messages are kept.
_UNREADABLE: Final = NamespacePolicies(
    retention=Retention(), message_ttl_s=0, size_quota=Quota(), age_quota=Quota(), compaction_threshold=0
)


class Namespaces:
    """`broker.Namespaces`: every namespace there is; those of `always` always are.

    `auto_create`: a namespace is created with its first topic, and a tenant with its first namespace.
    `listeners` are called after any change that may concern permissions.
    """

    def __init__(
        self,
        store: MetaStore,
        *,
        auto_create: bool = False,
        always: Sequence[NamespaceName] = ALWAYS,
        reader: DocumentReader | None = None,
    ) -> None:
        self.auto_create = auto_create
        self._always = always
        self._store = store
        self._reader = reader or DocumentReader()
        self._policies: dict[NamespaceName, NamespacePolicies] = {}
        self.tenants: dict[str, TenantInfo] = {}
        self._changing = asyncio.Lock()
        self.listeners: list[Callable[[], None]] = []
        self._policies_changed: list[Callable[[NamespaceName], None]] = []

    async def load(self) -> None:
        """Read stored namespaces."""
        self._reader.read_all(KIND, await self._store.load_meta(KIND), self._learn)
        self._reader.read_all(TENANT, await self._store.load_meta(TENANT), self._learn_tenant)
        for always in self._always:
            self._policies.setdefault(always, NamespacePolicies())
        for name in self._policies:
            self.tenants.setdefault(name.tenant, TenantInfo())

    def learned(self, key: str, document: bytes | None) -> None:
        """Another process has stored a namespace, or deleted it (None). One that cannot be read grants nothing."""
        name = NamespaceName.parse(key)
        try:
            self._learn(key, document)
        finally:
            self._permissions_changed()
            self._changed(name)

    def _learn(self, key: str, document: bytes | None) -> None:
        name = NamespaceName.parse(key)
        if document is not None:
            self.tenants.setdefault(name.tenant, TenantInfo())
            before = self._policies.get(name)
            # Until it is read: no permission, because it may be revoked, and no deletion by policies that are unknown.
            self._policies[name] = (
                _UNREADABLE
                if before is None
                else msgspec.structs.replace(before, permissions={}, topic_permissions={})
            )
            self._policies[name] = msgspec.json.decode(document, type=NamespacePolicies)
        elif name in self._always:
            self._policies[name] = NamespacePolicies()
        else:
            self._policies.pop(name, None)

    def learned_tenant(self, tenant: str, document: bytes | None) -> None:
        """Another process has stored a tenant, or deleted it (None). One that cannot be read has no administrators."""
        try:
            self._learn_tenant(tenant, document)
        finally:
            self._permissions_changed()

    def _learn_tenant(self, tenant: str, document: bytes | None) -> None:
        if document is None:
            self.tenants.pop(tenant, None)
        else:
            self.tenants[tenant] = TenantInfo()  # until it is read
            self.tenants[tenant] = msgspec.json.decode(document, type=TenantInfo)

    def exists(self, name: NamespaceName) -> bool:
        return name in self._policies

    def policies(self, name: NamespaceName) -> NamespacePolicies:
        found = self._policies.get(name)
        if found is None:
            raise PenstockError(ErrorKind.NAMESPACE_NOT_FOUND, f"namespace {name} does not exist")
        return found

    def serves(self, name: NamespaceName) -> bool:
        """Whether the namespace exists, or is created with its first topic."""
        return self.auto_create or name in self._policies

    def check(self, name: NamespaceName) -> None:
        if not self.serves(name):
            self.policies(name)

    def find(self, name: NamespaceName) -> NamespacePolicies | None:
        return self._policies.get(name)

    async def create(self, name: NamespaceName, policies: NamespacePolicies | None = None) -> None:
        if name in self._policies:
            raise PenstockError(ErrorKind.ALREADY_EXISTS, f"namespace {name} already exists")
        if not self.auto_create:
            tenant_of(self.tenants, name.tenant)
        await self.update(name, policies or NamespacePolicies())

    async def ensure(self, name: NamespaceName) -> None:
        """Create a namespace unless it is there."""
        if name not in self._policies:
            await self.update(name, NamespacePolicies())

    async def update(self, name: NamespaceName, policies: NamespacePolicies) -> None:
        """Set a namespace's policies, durably before they count."""
        documents: list[tuple[str, str, bytes | None]] = []
        if name.tenant not in self.tenants:
            documents.append((TENANT, name.tenant, b"{}"))
        documents.append((KIND, str(name), msgspec.json.encode(policies)))
        await self._save(name, documents)
        self._policies[name] = policies
        self.tenants.setdefault(name.tenant, TenantInfo())
        self._permissions_changed()
        self._changed(name)

    async def _save(self, name: NamespaceName, documents: list[tuple[str, str, bytes | None]]) -> None:
        """Store the documents of a namespace; an engine may refuse a new namespace."""
        await self._store.save_meta(documents)

    async def change(
        self, name: NamespaceName, change: Callable[[NamespacePolicies], NamespacePolicies]
    ) -> None:
        async with self._changing:
            await self.update(name, change(self.policies(name)))

    async def forget_topic(self, topic: TopicName) -> None:
        """A topic is deleted: a later one of its name begins without its permissions."""
        found = self._policies.get(topic.namespace_name)
        if found is not None and str(topic) in found.topic_permissions:

            def without(policies: NamespacePolicies) -> NamespacePolicies:
                others = {name: by for name, by in policies.topic_permissions.items() if name != str(topic)}
                return msgspec.structs.replace(policies, topic_permissions=others)

            await self.change(topic.namespace_name, without)

    def on_change(self, listener: Callable[[NamespaceName], None]) -> None:
        """Have `listener` called after other policies of a namespace were set."""
        self._policies_changed.append(listener)

    def _changed(self, name: NamespaceName) -> None:
        for listener in self._policies_changed:
            listener(name)

    def _permissions_changed(self) -> None:
        for listener in list(self.listeners):
            listener()

    async def delete(self, name: NamespaceName) -> None:
        """Forget a namespace, or the policies of one that always exists; the caller saw to it that it is empty."""
        self.policies(name)
        await self._store.save_meta([(KIND, str(name), None)])
        if name in self._always:
            self._policies[name] = NamespacePolicies()
        else:
            self._policies.pop(name, None)  # if it was learned before
        self._permissions_changed()

    def of_tenant(self, tenant: str) -> list[NamespaceName]:
        """The namespaces of a tenant, sorted; raises NOT_FOUND for an unknown tenant."""
        tenant_of(self.tenants, tenant)
        return sorted(name for name in self._policies if name.tenant == tenant)

    def all(self) -> list[NamespaceName]:
        return sorted(self._policies)

    # -- tenants

    async def set_tenant(self, tenant: str, info: TenantInfo, *, new: bool = False) -> None:
        if not new:
            tenant_of(self.tenants, tenant)
        else:
            check_entity("tenant", tenant)
            if tenant in self.tenants:
                raise PenstockError(ErrorKind.ALREADY_EXISTS, f"tenant {tenant} already exists")
        await self._store.save_meta([(TENANT, tenant, msgspec.json.encode(info))])
        self.tenants[tenant] = info
        self._permissions_changed()

    async def delete_tenant(self, tenant: str) -> None:
        """Forget a tenant; raises NOT_FOUND, NAMESPACE_IN_USE while it has namespaces."""
        if self.of_tenant(tenant):
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"tenant {tenant} still has namespaces")
        await self._store.save_meta([(TENANT, tenant, None)])
        self.tenants.pop(tenant, None)
        self._permissions_changed()
