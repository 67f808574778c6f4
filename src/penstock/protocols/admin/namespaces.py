"""Tenants and namespaces: create, list, describe and delete; what a namespace alone decides, and its properties."""

from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo, tenant_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import NamespacePolicies
from penstock.model.schema import Compatibility

from .call import Call
from .cluster import BUNDLES, CLUSTER
from .operations import NAMESPACE, Table
from .policies import SETTINGS, change, show
from .policy_bodies import (
    QUOTA_FIELDS,
    AutoSubscriptionBody,
    AutoTopicBody,
    DispatchRateBody,
    PublishRateBody,
    QuotaBody,
    RetentionBody,
    read_quota,
    shown_quotas,
)
from .topics import logs_of

table = Table()

_DOMAINS: Final = {"PERSISTENT": "persistent", "NON_PERSISTENT": "non-persistent", "ALL": None}


# -- tenants


@table.on("GET", "/admin/v2/tenants")
async def tenants(call: Call) -> list[str]:
    """List the tenants."""
    call.caller.may_administer()
    return sorted(call.broker.namespaces.tenants)


@table.on("GET", "/admin/v2/tenants/{tenant}")
async def tenant(call: Call) -> dict[str, Any]:
    """Describe a tenant."""
    call.caller.may_administer_tenant(call.tenant)
    found = tenant_of(call.broker.namespaces.tenants, call.tenant)
    return {"adminRoles": found.admin_roles, "allowedClusters": [CLUSTER]}


class _Tenant(msgspec.Struct):
    """The part of Pulsar's TenantInfo that there is here."""

    adminRoles: set[str] = set()  # noqa: N815 - Pulsar's JSON


def _info(call: Call) -> TenantInfo:
    given = call.body_or_none(_Tenant)
    return TenantInfo(tuple(sorted(given.adminRoles)) if given is not None else ())


@table.on("PUT", "/admin/v2/tenants/{tenant}", body=dict[str, Any])
async def create_tenant(call: Call) -> None:
    """Create a tenant; its adminRoles may do everything in it."""
    call.caller.may_administer()
    await call.broker.namespaces.set_tenant(call.tenant, _info(call), new=True)


@table.on("POST", "/admin/v2/tenants/{tenant}", body=dict[str, Any])
async def update_tenant(call: Call) -> None:
    """Say which roles administer a tenant."""
    call.caller.may_administer()
    await call.broker.namespaces.set_tenant(call.tenant, _info(call))


@table.on("DELETE", "/admin/v2/tenants/{tenant}", query=("force",))
async def delete_tenant(call: Call) -> None:
    """Delete a tenant; with `force` also its namespaces and their topics."""
    call.caller.may_administer()
    await call.administration.delete_tenant(call.tenant, force=call.flag("force"))


@table.on("GET", "/admin/v2/namespaces/{tenant}")
async def of_tenant(call: Call) -> list[str]:
    """List a tenant's namespaces."""
    tenant = call.tenant
    found = [name for name in call.broker.namespaces.all() if name.tenant == tenant]
    seen = [str(name) for name in found if call.caller.knows(name)]
    if not seen:
        call.caller.may_administer_tenant(tenant)
        tenant_of(call.broker.namespaces.tenants, tenant)
    return seen


# -- namespaces


# Pulsar's names of what a namespace decides, in the document of all its policies.
_NAMES: Final = {
    "retention": "retention_policies",
    "message_ttl_s": "message_ttl_in_seconds",
    "deduplication": "deduplicationEnabled",
    "max_producers": "max_producers_per_topic",
    "max_consumers": "max_consumers_per_topic",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions": "max_subscriptions_per_topic",
    "max_topics": "max_topics_per_namespace",
    "max_unacked_per_consumer": "max_unacked_messages_per_consumer",
    "compaction_threshold": "compaction_threshold",
    "publish_rate": "publishMaxMessageRate",
    "dispatch_rate": "topicDispatchRate",
    "subscription_dispatch_rate": "subscriptionDispatchRate",
    "auto_topics": "autoTopicCreationOverride",
    "auto_subscriptions": "autoSubscriptionCreationOverride",
    "subscription_types": "subscription_types_enabled",
    "schema_compatibility": "schema_compatibility_strategy",
    "schema_auto_update": "is_allow_auto_update_schema",
    "quotas": "backlog_quota_map",
}
_BY_CLUSTER: Final = ("publish_rate", "dispatch_rate", "subscription_dispatch_rate")


class _Policies(msgspec.Struct, omit_defaults=True, rename=_NAMES):
    """The part of Pulsar's policies that there is here; the rest is passed over, as Pulsar's tools send it all."""

    deduplication: bool | None = None
    schema_compatibility: Compatibility = Compatibility.UNDEFINED
    schema_validation_enforced: bool = False
    schema_auto_update: bool | None = None
    retention: RetentionBody | None = None
    message_ttl_s: int | None = None
    quotas: dict[str, QuotaBody] = {}
    max_producers: int | None = None
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions: int | None = None
    max_topics: int | None = None
    max_unacked_per_consumer: int | None = None
    compaction_threshold: int | None = None
    auto_topics: AutoTopicBody | None = None
    auto_subscriptions: AutoSubscriptionBody | None = None
    subscription_types: list[str] = []
    publish_rate: dict[str, PublishRateBody] = {}
    dispatch_rate: dict[str, DispatchRateBody] = {}
    subscription_dispatch_rate: dict[str, DispatchRateBody] = {}
    properties: dict[str, str] | None = None

    def kept(self) -> NamespacePolicies:
        """The policies as they are kept; raises BAD_PARAMETER."""
        kept: dict[str, Any] = {}
        for setting in SETTINGS:
            value = getattr(self, setting.field)
            if setting.field in _BY_CLUSTER:
                value = value.get(CLUSTER)
            if value is not None and value != []:
                kept[setting.field] = setting.read(value)
        for kind, body in self.quotas.items():
            if kind in QUOTA_FIELDS:
                kept[QUOTA_FIELDS[kind]] = read_quota(QUOTA_FIELDS[kind], body)
        return NamespacePolicies(
            schema_compatibility=self.schema_compatibility,
            schema_validation_enforced=self.schema_validation_enforced,
            schema_auto_update=self.schema_auto_update is not False,
            properties=self.properties or {},
            **kept,
        )


@table.on("PUT", NAMESPACE, body=dict[str, Any])
async def create(call: Call) -> None:
    """Create a namespace, with the policies of the body, if any."""
    wanted = call.body_or_none(_Policies)
    policies = NamespacePolicies() if wanted is None else wanted.kept()
    await call.broker.namespaces.create(call.namespace, policies)


@table.on("GET", NAMESPACE)
async def policies(call: Call) -> dict[str, Any]:
    """Describe a namespace's policies."""
    found = call.broker.namespaces.policies(call.namespace)
    shown = {setting.field: show(setting, found) for setting in SETTINGS}
    for field in _BY_CLUSTER:
        shown[field] = {} if shown[field] is None else {CLUSTER: shown[field]}
    return {
        **{_NAMES[field]: value for field, value in shown.items()},
        "subscription_types_enabled": shown["subscription_types"] or [],
        "backlog_quota_map": shown_quotas(found),
        "schema_compatibility_strategy": found.schema_compatibility,
        "schema_validation_enforced": found.schema_validation_enforced,
        "is_allow_auto_update_schema": found.schema_auto_update,
        "properties": found.properties,
        "auth_policies": {
            "namespace_auth": found.permissions,
            "destination_auth": found.topic_permissions,
            "subscription_auth_roles": {},
        },
        "replication_clusters": [CLUSTER],
        "bundles": BUNDLES,
        "subscription_auth_mode": "None",
        "encryption_required": False,
    }


@table.on("DELETE", NAMESPACE, query=("force",))
async def delete(call: Call) -> None:
    """Delete a namespace; with `force` also its topics."""
    await call.administration.delete_namespace(call.namespace, force=call.flag("force"))


@table.on("GET", f"{NAMESPACE}/topics", query=("mode",))
async def topics(call: Call) -> list[str]:
    """List a namespace's topics, partitioned ones by their partitions; `mode` PERSISTENT, NON_PERSISTENT or ALL."""
    mode = call.query.get("mode", "PERSISTENT").upper()
    if mode not in _DOMAINS:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "mode must be PERSISTENT, NON_PERSISTENT or ALL")
    return await logs_of(call, _DOMAINS[mode])


# -- what a namespace alone decides


@table.on("GET", f"{NAMESPACE}/deduplication")
async def deduplication(call: Call) -> bool | None:
    """Whether repeated sequence ids are dropped; `null` leaves it to the server's default."""
    return call.broker.namespaces.policies(call.namespace).deduplication


@table.on("POST", f"{NAMESPACE}/deduplication", body=bool)
async def set_deduplication(call: Call) -> None:
    """Have repeated sequence ids dropped, or not."""
    await change(call, "deduplication", call.body(bool))


@table.on("DELETE", f"{NAMESPACE}/deduplication")
async def unset_deduplication(call: Call) -> None:
    """Leave deduplication to the server's default."""
    await change(call, "deduplication", None)


@table.on("GET", f"{NAMESPACE}/schemaCompatibilityStrategy")
async def compatibility(call: Call) -> Compatibility:
    """When a new schema may follow those before."""
    return call.broker.namespaces.policies(call.namespace).schema_compatibility


@table.on("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", body=str)
async def set_compatibility(call: Call) -> None:
    """Say when a new schema may follow those before."""
    word = call.word()
    chosen = Compatibility.__members__.get(word.upper())
    if chosen is None:
        known = ", ".join(Compatibility.__members__)
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"unknown strategy {word[:80]!r}; there are {known}")
    await change(call, "schema_compatibility", chosen)


@table.on("GET", f"{NAMESPACE}/schemaValidationEnforced", query=("applied",))
async def validation(call: Call) -> bool:
    """Whether messages must have a schema if their topic has one."""
    return call.broker.namespaces.policies(call.namespace).schema_validation_enforced


@table.on("POST", f"{NAMESPACE}/schemaValidationEnforced", body=bool)
async def set_validation(call: Call) -> None:
    """Set whether messages must have a schema if their topic has one."""
    await change(call, "schema_validation_enforced", call.body(bool))


@table.on("GET", f"{NAMESPACE}/isAllowAutoUpdateSchema")
async def auto_update(call: Call) -> bool:
    """Whether producers may bring new schemas."""
    return call.broker.namespaces.policies(call.namespace).schema_auto_update


@table.on("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", body=bool)
async def set_auto_update(call: Call) -> None:
    """Let producers bring new schemas, or not."""
    await change(call, "schema_auto_update", call.body(bool))
