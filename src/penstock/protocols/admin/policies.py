"""The policies that namespaces and topics share: their JSON as Pulsar has it, and what may be said."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import InForce, Quota, TopicPolicies
from penstock.protocols.http.answers import Answer

from .call import Call
from .policy_bodies import (
    AutoSubscriptionBody,
    AutoTopicBody,
    DispatchRateBody,
    PublishRateBody,
    QuotaBody,
    RetentionBody,
    natural,
    read_auto_topics,
    read_dispatch_rate,
    read_publish_rate,
    read_retention,
    read_subscription_types,
    shown_auto_topics,
    shown_dispatch_rate,
    shown_publish_rate,
    shown_retention,
    size_in_bytes,
)

SIZE, AGE = "destination_storage", "message_age"
QUOTA_FIELDS: Final = {SIZE: "size_quota", AGE: "age_quota"}

Policied = TopicPolicies | InForce


class Setting(NamedTuple):
    """One policy: where it is kept, under which paths, and its JSON."""

    field: str
    namespace: str  # the last segment of its path below a namespace; "": not there
    topic: str  # and below a topic
    body: Any
    says: str  # of what it decides, for the documentation
    read: Callable[[Any], Any]  # a body's value as it is kept; raises BAD_PARAMETER
    shown: Callable[[Any], Any] = lambda value: value
    parameter: str = ""  # a topic's may come in the query, as Pulsar's tools send it
    method: str = "POST"  # that sets a namespace's


SETTINGS: Final = (
    Setting(
        "retention",
        "retention",
        "retention",
        RetentionBody,
        "how long, and up to which size, acknowledged messages are kept",
        read_retention,
        shown_retention,
    ),
    Setting(
        "message_ttl_s",
        "messageTTL",
        "messageTTL",
        int,
        "after how many seconds messages count as acknowledged",
        natural,
        parameter="messageTTL",
    ),
    Setting("deduplication", "", "deduplicationEnabled", bool, "whether repeats are dropped", bool),
    Setting(
        "max_producers",
        "maxProducersPerTopic",
        "maxProducers",
        int,
        "the most producers of a topic",
        natural,
    ),
    Setting(
        "max_consumers",
        "maxConsumersPerTopic",
        "maxConsumers",
        int,
        "the most consumers of a topic",
        natural,
    ),
    Setting(
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        int,
        "the most consumers of a subscription",
        natural,
    ),
    Setting(
        "max_subscriptions",
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        int,
        "the most subscriptions of a topic",
        natural,
    ),
    Setting(
        "max_topics",
        "maxTopicsPerNamespace",
        "",
        int,
        "the most topics of a namespace, partitions counted each",
        natural,
    ),
    Setting(
        "max_unacked_per_consumer",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
        int,
        "the most unacknowledged messages of a Shared or Key_Shared consumer",
        natural,
    ),
    Setting(
        "compaction_threshold",
        "compactionThreshold",
        "compactionThreshold",
        int,
        "after how many bytes a topic is compacted by itself, 0 for never",
        size_in_bytes,
        method="PUT",
    ),
    Setting(
        "publish_rate",
        "publishRate",
        "publishRate",
        PublishRateBody,
        "how fast messages may be published to a topic",
        read_publish_rate,
        shown_publish_rate,
    ),
    Setting(
        "dispatch_rate",
        "dispatchRate",
        "dispatchRate",
        DispatchRateBody,
        "how fast a topic delivers, over all its subscriptions",
        read_dispatch_rate,
        shown_dispatch_rate,
    ),
    Setting(
        "subscription_dispatch_rate",
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        DispatchRateBody,
        "how fast each subscription delivers",
        read_dispatch_rate,
        shown_dispatch_rate,
    ),
    Setting(
        "auto_subscriptions",
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
        AutoSubscriptionBody,
        "whether a consumer may create a durable subscription",
        lambda body: body.allowAutoSubscriptionCreation,
        lambda allowed: {"allowAutoSubscriptionCreation": allowed},
    ),
    Setting(
        "subscription_types",
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        list[str],
        "which types subscriptions may have, none named for all",
        read_subscription_types,
        lambda types: [one.value for one in types],
    ),
    Setting(
        "auto_topics",
        "autoTopicCreation",
        "",
        AutoTopicBody,
        "whether a topic is created when it is first used, and with how many partitions",
        read_auto_topics,
        shown_auto_topics,
    ),
)


def answer(value: Any) -> Answer:
    """A policy as JSON; `null` where nothing is decided."""
    return Answer(raw=msgspec.json.encode(value), headers={"content-type": "application/json"})


def show(setting: Setting, policies: Any) -> Any:
    """A policy's JSON, None where nothing is decided."""
    value = getattr(policies, setting.field)
    return None if value is None else setting.shown(value)


def wanted(setting: Setting, call: Call) -> Any:
    """What a call wants a policy to be; raises BAD_PARAMETER."""
    text = call.query.get(setting.parameter) if setting.parameter else None
    if text is None:
        body = call.body(setting.body)
        if isinstance(body, msgspec.Struct):
            _check_known(call, body)
        return setting.read(body)
    if not (text.lstrip("-").isdecimal() and text.isascii() and len(text) <= 18):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"{setting.parameter} must be a number, not {text[:80]!r}"
        )
    return setting.read(int(text))


def _check_known(call: Call, body: msgspec.Struct) -> None:
    """Raise BAD_PARAMETER for an object that names fields and none that there is: it would bound nothing, unnoticed."""
    given = call.body(dict[str, Any])
    if given and given.keys().isdisjoint(body.__struct_fields__):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"bad body: it has none of the fields {', '.join(body.__struct_fields__)}",
        )


# -- backlog quotas


def quota_field(call: Call) -> str:
    """Which of the two quotas a call is about; raises BAD_PARAMETER."""
    kind = call.query.get("backlogQuotaType", SIZE)
    if kind not in QUOTA_FIELDS:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"backlogQuotaType must be {SIZE} or {AGE}")
    return QUOTA_FIELDS[kind]


def wanted_quota(call: Call) -> Quota:
    """The quota that a call wants; raises BAD_PARAMETER."""
    return read_quota(quota_field(call), call.body(QuotaBody))


def read_quota(field: str, body: QuotaBody) -> Quota:
    """A quota from its JSON."""
    size = body.limit if body.limitSize is None else body.limitSize
    limit = size if field == "size_quota" else body.limitTime
    if not -1 <= limit < 1 << 53:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"a quota's limit is -1, for none, or more, not {limit}")
    return Quota(limit, body.policy)


def shown_quotas(policies: Policied) -> dict[str, Any]:
    """The quotas that are decided, as Pulsar's JSON has them."""
    shown: dict[str, Any] = {}
    if policies.size_quota is not None:
        shown[SIZE] = _shown_quota(policies.size_quota.limit, -1, policies.size_quota)
    if policies.age_quota is not None:
        shown[AGE] = _shown_quota(-1, policies.age_quota.limit, policies.age_quota)
    return shown


def _shown_quota(size: int, seconds: int, quota: Quota) -> dict[str, Any]:
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": quota.action.value}
