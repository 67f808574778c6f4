"""Namespaces and their policies."""

from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import NamespacePolicies
from penstock.model.schema import Compatibility
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .policies import QUOTA_FIELDS, SETTINGS, read_quota, show, shown_quotas
from .policy_bodies import (
    AutoSubscriptionBody,
    AutoTopicBody,
    DispatchRateBody,
    PublishRateBody,
    QuotaBody,
    RetentionBody,
)
from .server import BUNDLES, CLUSTER
from .table import Table
from .topics import logs_of

table = Table()

NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"

_DOMAINS = {"PERSISTENT": "persistent", "NON_PERSISTENT": "non-persistent", "ALL": None}


class _Policies(msgspec.Struct, omit_defaults=True):
    """The part of Pulsar's policies that there is here; the rest is passed over, as Pulsar's tools send it all."""

    deduplicationEnabled: bool | None = None  # noqa: N815 - Pulsar's JSON
    schema_compatibility_strategy: Compatibility = Compatibility.UNDEFINED
    schema_validation_enforced: bool = False
    is_allow_auto_update_schema: bool | None = None
    retention_policies: RetentionBody | None = None
    message_ttl_in_seconds: int | None = None
    backlog_quota_map: dict[str, QuotaBody] = {}
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    compaction_threshold: int | None = None
    autoTopicCreationOverride: AutoTopicBody | None = None  # noqa: N815
    autoSubscriptionCreationOverride: AutoSubscriptionBody | None = None  # noqa: N815
    subscription_types_enabled: list[str] = []
    # By cluster, as Pulsar has them.
    publishMaxMessageRate: dict[str, PublishRateBody] = {}  # noqa: N815
    topicDispatchRate: dict[str, DispatchRateBody] = {}  # noqa: N815
    subscriptionDispatchRate: dict[str, DispatchRateBody] = {}  # noqa: N815
    properties: dict[str, str] | None = None


@table.on("GET", "/admin/v2/namespaces/{tenant}", answer=list[str])
async def of_tenant(call: Call) -> Answer:
    """List a tenant's namespaces."""
    tenant = call.path["tenant"]
    found = [name for name in call.broker.namespaces.all() if name.tenant == tenant]
    seen = [str(name) for name in found if call.caller.knows(name)]
    if not seen:
        call.caller.may_administer_tenant(tenant)
        call.broker.namespaces.check_tenant(tenant)
    return Answer(body=seen)


@table.on("PUT", NAMESPACE, body=dict[str, Any])
async def create(call: Call) -> Answer:
    """Create a namespace, with policies where the body names some."""
    wanted = call.body_or_none(_Policies)
    policies = NamespacePolicies()
    if wanted is not None:
        policies = NamespacePolicies(
            deduplication=wanted.deduplicationEnabled,
            schema_compatibility=wanted.schema_compatibility_strategy,
            schema_validation_enforced=wanted.schema_validation_enforced,
            schema_auto_update=wanted.is_allow_auto_update_schema is not False,
            properties=wanted.properties or {},
            **_kept(wanted),
        )
    await call.broker.namespaces.create(call.namespace, policies)
    return NO_CONTENT


# The document's names of what `policies.SETTINGS` keeps.
_FIELDS: Final = {
    "retention": "retention_policies",
    "message_ttl_s": "message_ttl_in_seconds",
    "max_producers": "max_producers_per_topic",
    "max_consumers": "max_consumers_per_topic",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions": "max_subscriptions_per_topic",
    "max_topics": "max_topics_per_namespace",
    "max_unacked_per_consumer": "max_unacked_messages_per_consumer",
    "compaction_threshold": "compaction_threshold",
    "auto_topics": "autoTopicCreationOverride",
    "auto_subscriptions": "autoSubscriptionCreationOverride",
    "subscription_types": "subscription_types_enabled",
}
_RATES: Final = {
    "publish_rate": "publishMaxMessageRate",
    "dispatch_rate": "topicDispatchRate",
    "subscription_dispatch_rate": "subscriptionDispatchRate",
}


def _kept(wanted: _Policies) -> dict[str, Any]:
    """The part of a document that decides what is kept and counted; raises BAD_PARAMETER."""
    kept: dict[str, Any] = {}
    for setting in SETTINGS:
        value = getattr(wanted, _FIELDS.get(setting.field, ""), None)
        if setting.field in _RATES:
            value = getattr(wanted, _RATES[setting.field]).get(CLUSTER)
        if value is not None and value != []:
            kept[setting.field] = setting.read(value)
    for kind, body in wanted.backlog_quota_map.items():
        if kind in QUOTA_FIELDS:
            kept[QUOTA_FIELDS[kind]] = read_quota(QUOTA_FIELDS[kind], body)
    return kept


@table.on("GET", NAMESPACE)
async def policies(call: Call) -> Answer:
    """Describe a namespace's policies."""
    found = call.broker.namespaces.policies(call.namespace)
    return Answer(
        body={
            "auth_policies": {
                "namespace_auth": found.permissions,
                "destination_auth": found.topic_permissions,
                "subscription_auth_roles": {},
            },
            "replication_clusters": [CLUSTER],
            "bundles": BUNDLES,
            "deduplicationEnabled": found.deduplication,
            **{name: show(setting, found) for setting in SETTINGS if (name := _FIELDS.get(setting.field))},
            "backlog_quota_map": shown_quotas(found),
            **{
                _RATES[setting.field]: {} if (rate := show(setting, found)) is None else {CLUSTER: rate}
                for setting in SETTINGS
                if setting.field in _RATES
            },
            "subscription_types_enabled": [one.value for one in found.subscription_types or ()],
            "subscription_auth_mode": "None",
            "encryption_required": False,
            "properties": found.properties,
            "schema_compatibility_strategy": found.schema_compatibility,
            "schema_validation_enforced": found.schema_validation_enforced,
            "is_allow_auto_update_schema": found.schema_auto_update,
        }
    )


@table.on("DELETE", NAMESPACE, query=("force",))
async def delete(call: Call) -> Answer:
    """Delete a namespace; with `force` also its topics."""
    await call.broker.delete_namespace(call.namespace, force=call.flag("force"))
    return NO_CONTENT


@table.on("GET", f"{NAMESPACE}/topics", query=("mode",), answer=list[str])
async def topics(call: Call) -> Answer:
    """List a namespace's topics, partitioned ones by their partitions; `mode` PERSISTENT, NON_PERSISTENT or ALL."""
    mode = call.query.get("mode", "PERSISTENT").upper()
    if mode not in _DOMAINS:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "mode must be PERSISTENT, NON_PERSISTENT or ALL")
    return Answer(body=logs_of(call, _DOMAINS[mode]))


# -- policies, one by one


async def _change(call: Call, **changes: Any) -> Answer:
    def changed(found: NamespacePolicies) -> NamespacePolicies:
        return msgspec.structs.replace(found, **changes)

    await call.broker.namespaces.change(call.namespace, changed)
    return NO_CONTENT


@table.on("GET", f"{NAMESPACE}/deduplication", answer=bool | None)
async def deduplication(call: Call) -> Answer:
    """Whether repeated sequence ids are dropped; `null` leaves it to the server's default."""
    chosen = call.broker.namespaces.policies(call.namespace).deduplication
    return Answer(raw=msgspec.json.encode(chosen), headers={"content-type": "application/json"})


@table.on("POST", f"{NAMESPACE}/deduplication", body=bool)
async def set_deduplication(call: Call) -> Answer:
    """Have repeated sequence ids dropped, or not."""
    return await _change(call, deduplication=call.body(bool))


@table.on("DELETE", f"{NAMESPACE}/deduplication")
async def unset_deduplication(call: Call) -> Answer:
    """Leave deduplication to the server's default."""
    return await _change(call, deduplication=None)


@table.on("GET", f"{NAMESPACE}/schemaCompatibilityStrategy", answer=Compatibility)
async def compatibility(call: Call) -> Answer:
    """When a new schema may follow those before."""
    return Answer(body=call.broker.namespaces.policies(call.namespace).schema_compatibility)


@table.on("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", body=str)
async def set_compatibility(call: Call) -> Answer:
    """Say when a new schema may follow those before."""
    word = call.word()
    chosen = Compatibility.__members__.get(word.upper())
    if chosen is None:
        known = ", ".join(Compatibility.__members__)
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"unknown strategy {word[:80]!r}; there are {known}")
    return await _change(call, schema_compatibility=chosen)


@table.on("GET", f"{NAMESPACE}/schemaValidationEnforced", query=("applied",), answer=bool)
async def validation(call: Call) -> Answer:
    """Whether messages must have a schema where their topic has one."""
    return Answer(body=call.broker.namespaces.policies(call.namespace).schema_validation_enforced)


@table.on("POST", f"{NAMESPACE}/schemaValidationEnforced", body=bool)
async def set_validation(call: Call) -> Answer:
    """Demand a schema of messages where their topic has one, or not."""
    return await _change(call, schema_validation_enforced=call.body(bool))


@table.on("GET", f"{NAMESPACE}/isAllowAutoUpdateSchema", answer=bool)
async def auto_update(call: Call) -> Answer:
    """Whether producers may bring new schemas."""
    return Answer(body=call.broker.namespaces.policies(call.namespace).schema_auto_update)


@table.on("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", body=bool)
async def set_auto_update(call: Call) -> Answer:
    """Let producers bring new schemas, or not."""
    return await _change(call, schema_auto_update=call.body(bool))
