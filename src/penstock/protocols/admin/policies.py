"""What namespaces and topics decide, policy by policy, under Pulsar's paths; `applied` asks what holds for a topic."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce, TopicPolicies

from .call import Call
from .operations import NAMESPACE, TOPIC, Table
from .policy_bodies import (
    QUOTA_FIELDS,
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
    read_quota,
    read_retention,
    read_subscription_types,
    shown_auto_topics,
    shown_dispatch_rate,
    shown_publish_rate,
    shown_quotas,
    shown_retention,
    size_in_bytes,
)

table = Table()


class Setting(NamedTuple):
    """One policy: its field, its paths, and its JSON."""

    field: str
    namespace: str  # the last segment of its path below a namespace; "": not there
    topic: str  # and below a topic
    says: str  # what it decides, for the documentation
    body: Any = int
    read: Callable[[Any], Any] = natural  # a body's value as it is kept; raises BAD_PARAMETER
    shown: Callable[[Any], Any] = lambda value: value
    parameter: str = ""  # a topic's may come in the query, as Pulsar's tools send it
    method: str = "POST"  # that sets a namespace's


SETTINGS: Final = (
    Setting(
        "retention",
        "retention",
        "retention",
        "how long, and up to which size, acknowledged messages are kept",
        RetentionBody,
        read_retention,
        shown_retention,
    ),
    Setting(
        "message_ttl_s",
        "messageTTL",
        "messageTTL",
        "after how many seconds messages count as acknowledged",
        parameter="messageTTL",
    ),
    Setting("deduplication", "", "deduplicationEnabled", "whether repeats are dropped", bool, bool),
    Setting("max_producers", "maxProducersPerTopic", "maxProducers", "the most producers of a topic"),
    Setting("max_consumers", "maxConsumersPerTopic", "maxConsumers", "the most consumers of a topic"),
    Setting(
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        "the most consumers of a subscription",
    ),
    Setting(
        "max_subscriptions",
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        "the most subscriptions of a topic",
    ),
    Setting(
        "max_topics", "maxTopicsPerNamespace", "", "the most topics of a namespace, partitions counted each"
    ),
    Setting(
        "max_unacked_per_consumer",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
        "the most unacknowledged messages of a Shared or Key_Shared consumer",
    ),
    Setting(
        "compaction_threshold",
        "compactionThreshold",
        "compactionThreshold",
        "after how many bytes a topic is compacted by itself, 0 for never",
        read=size_in_bytes,
        method="PUT",
    ),
    Setting(
        "publish_rate",
        "publishRate",
        "publishRate",
        "how fast messages may be published to a topic",
        PublishRateBody,
        read_publish_rate,
        shown_publish_rate,
    ),
    Setting(
        "dispatch_rate",
        "dispatchRate",
        "dispatchRate",
        "how fast a topic delivers, over all its subscriptions",
        DispatchRateBody,
        read_dispatch_rate,
        shown_dispatch_rate,
    ),
    Setting(
        "subscription_dispatch_rate",
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        "how fast each subscription delivers",
        DispatchRateBody,
        read_dispatch_rate,
        shown_dispatch_rate,
    ),
    Setting(
        "auto_subscriptions",
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
        "whether a consumer may create a durable subscription",
        AutoSubscriptionBody,
        lambda body: body.allowAutoSubscriptionCreation,
        lambda allowed: {"allowAutoSubscriptionCreation": allowed},
    ),
    Setting(
        "subscription_types",
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        "which types subscriptions may have, none named for all",
        list[str],
        read_subscription_types,
        lambda types: [one.value for one in types],
    ),
    Setting(
        "auto_topics",
        "autoTopicCreation",
        "",
        "whether a topic is created when it is first used, and with how many partitions",
        AutoTopicBody,
        read_auto_topics,
        shown_auto_topics,
    ),
)


def show(setting: Setting, policies: Any) -> Any:
    """A policy's JSON, None if it is not set."""
    value = getattr(policies, setting.field)
    return None if value is None else setting.shown(value)


def _topic(call: Call) -> TopicName:
    """The topic whose policies are meant: a partition has its topic's. Raises TOPIC_NOT_FOUND."""
    name, topics = call.topic, call.broker.topics
    if not topics.exists(name):
        raise topics.missing(name)
    return name.base if topics.exists(name.base) else name


def _decided(call: Call) -> TopicPolicies | InForce:
    """The policies of what the path names, a namespace or a topic."""
    if "topic" not in call.path:
        return call.broker.namespaces.policies(call.namespace)
    name, policies = _topic(call), call.policies
    return policies.in_force(name) if call.flag("applied") else policies.of_topic(name)


async def change(call: Call, field: str, value: Any) -> None:
    """Decide a policy of what the path names."""
    if "topic" in call.path:
        name, policies = _topic(call), call.policies
        await policies.change_topic(name, lambda now: msgspec.structs.replace(now, **{field: value}))
    else:
        namespace, namespaces = call.namespace, call.broker.namespaces
        await namespaces.change(namespace, lambda now: msgspec.structs.replace(now, **{field: value}))


def _wanted(setting: Setting, call: Call) -> Any:
    """What a call wants a policy to be; raises BAD_PARAMETER."""
    text = call.query.get(setting.parameter) if setting.parameter and "topic" in call.path else None
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


def _declare(setting: Setting, path: str, above: str) -> None:
    """Declare how a policy is read, set and removed."""
    of_topic = path.startswith(TOPIC)

    async def get(call: Call) -> Any:
        shown = show(setting, _decided(call))
        if shown is None and setting.field == "max_topics":
            shown = call.policies.max_topics(call.namespace)  # Java's client wants a number
        return shown

    async def put(call: Call) -> None:
        await change(call, setting.field, _wanted(setting, call))

    async def unset(call: Call) -> None:
        await change(call, setting.field, None)

    applied = ", `applied` says what holds" if of_topic else ""
    get.__doc__ = f"Say {setting.says}; `null` leaves it to the {above}{applied}."
    put.__doc__ = f"Decide {setting.says}."
    unset.__doc__ = f"Leave to the {above} {setting.says}."
    table.on("GET", path, answer=setting.body | None, query=("applied",) if of_topic else ())(get)
    parameters = (setting.parameter,) if of_topic and setting.parameter else ()
    table.on("POST" if of_topic else setting.method, path, body=setting.body, query=parameters)(put)
    table.on("DELETE", path)(unset)


for _setting in SETTINGS:
    if _setting.namespace:
        _declare(_setting, f"{NAMESPACE}/{_setting.namespace}", "server")
    if _setting.topic:
        _declare(_setting, f"{TOPIC}/{_setting.topic}", "namespace")


# -- backlog quotas


def _quota_field(call: Call) -> str:
    """Which of the two quotas a call is about; raises BAD_PARAMETER."""
    field = QUOTA_FIELDS.get(call.query.get("backlogQuotaType", "destination_storage"))
    if field is None:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"backlogQuotaType must be {' or '.join(QUOTA_FIELDS)}")
    return field


@table.on("GET", f"{NAMESPACE}/backlogQuotaMap", answer=dict[str, QuotaBody])
async def quotas_of_namespace(call: Call) -> dict[str, Any]:
    """The backlog quotas that the namespace decides, by type."""
    return shown_quotas(_decided(call))


@table.on("GET", f"{TOPIC}/backlogQuotaMap", query=("applied",), answer=dict[str, QuotaBody])
async def quotas_of_topic(call: Call) -> dict[str, Any]:
    """The backlog quotas that the topic decides, by type; `applied`: those that hold."""
    return shown_quotas(_decided(call))


@table.on(
    "POST",
    f"{NAMESPACE}/backlogQuota",
    f"{TOPIC}/backlogQuota",
    query=("backlogQuotaType",),
    body=QuotaBody,
)
async def set_quota(call: Call) -> None:
    """Bound the backlog, by `backlogQuotaType` destination_storage (bytes) or message_age (seconds)."""
    field = _quota_field(call)
    await change(call, field, read_quota(field, call.body(QuotaBody)))


@table.on("DELETE", f"{NAMESPACE}/backlogQuota", query=("backlogQuotaType",))
async def unset_quota_of_namespace(call: Call) -> None:
    """Leave a backlog quota to the server."""
    await change(call, _quota_field(call), None)


@table.on("DELETE", f"{TOPIC}/backlogQuota", query=("backlogQuotaType",))
async def unset_quota_of_topic(call: Call) -> None:
    """Leave a backlog quota to the namespace."""
    await change(call, _quota_field(call), None)
