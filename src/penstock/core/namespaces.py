"""Tenants and namespaces, with their policies."""

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, check_entity
from penstock.model.policy import NamespacePolicies

from .ports import MetaStore

_KIND = "namespace"
_TENANT = "tenant"


class Namespaces:
    """Every namespace there is; `public/default` always is."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._policies: dict[NamespaceName, NamespacePolicies] = {}
        self._tenants: set[str] = set()

    async def load(self) -> None:
        """Read what is stored."""
        documents = await self._store.load_meta(_KIND)
        for key, document in documents.items():
            self._policies[NamespaceName.parse(key)] = msgspec.json.decode(document, type=NamespacePolicies)
        self._tenants = set(await self._store.load_meta(_TENANT))
        self._tenants.update(name.tenant for name in self._policies)
        self._policies.setdefault(DEFAULT_NAMESPACE, NamespacePolicies())
        self._tenants.add(DEFAULT_NAMESPACE.tenant)

    def exists(self, name: NamespaceName) -> bool:
        return name in self._policies

    def policies(self, name: NamespaceName) -> NamespacePolicies:
        """A namespace's policies; raises NAMESPACE_NOT_FOUND."""
        found = self._policies.get(name)
        if found is None:
            raise PenstockError(ErrorKind.NAMESPACE_NOT_FOUND, f"namespace {name} does not exist")
        return found

    async def create(self, name: NamespaceName, policies: NamespacePolicies | None = None) -> None:
        """Create a namespace and, where it is new, its tenant; raises ALREADY_EXISTS."""
        if name in self._policies:
            raise PenstockError(ErrorKind.ALREADY_EXISTS, f"namespace {name} already exists")
        await self.update(name, policies or NamespacePolicies())

    async def ensure(self, name: NamespaceName) -> None:
        """Create a namespace unless it is there."""
        if name not in self._policies:
            await self.update(name, NamespacePolicies())

    async def update(self, name: NamespaceName, policies: NamespacePolicies) -> None:
        """Set a namespace's policies, durably before they count."""
        documents: list[tuple[str, str, bytes | None]] = [(_KIND, str(name), msgspec.json.encode(policies))]
        if name.tenant not in self._tenants:
            documents.append((_TENANT, name.tenant, b"{}"))
        await self._store.save_meta(documents)
        self._policies[name] = policies
        self._tenants.add(name.tenant)

    async def delete(self, name: NamespaceName) -> None:
        """Forget a namespace; the caller saw to it that it is empty."""
        self.policies(name)
        await self._store.save_meta([(_KIND, str(name), None)])
        del self._policies[name]

    def of_tenant(self, tenant: str) -> list[NamespaceName]:
        """The namespaces of a tenant, sorted; raises NOT_FOUND for an unknown tenant."""
        self.check_tenant(tenant)
        return sorted(name for name in self._policies if name.tenant == tenant)

    def all(self) -> list[NamespaceName]:
        return sorted(self._policies)

    # -- tenants

    @property
    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def check_tenant(self, tenant: str) -> None:
        """Raise NOT_FOUND unless the tenant exists."""
        if tenant not in self._tenants:
            raise PenstockError(ErrorKind.NOT_FOUND, f"tenant {tenant} does not exist")

    async def create_tenant(self, tenant: str) -> None:
        """Create a tenant; raises ALREADY_EXISTS."""
        check_entity("tenant", tenant)
        if tenant in self._tenants:
            raise PenstockError(ErrorKind.ALREADY_EXISTS, f"tenant {tenant} already exists")
        await self._store.save_meta([(_TENANT, tenant, b"{}")])
        self._tenants.add(tenant)

    async def delete_tenant(self, tenant: str) -> None:
        """Forget a tenant; raises NOT_FOUND, NAMESPACE_IN_USE while it has namespaces."""
        if self.of_tenant(tenant):
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"tenant {tenant} still has namespaces")
        await self._store.save_meta([(_TENANT, tenant, None)])
        self._tenants.discard(tenant)
