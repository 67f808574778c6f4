"""The policies of namespaces and topics that a command can show, set and remove, one row each."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from .options import Decorated
from .quantities import DURATION, SIZE
from .spelling import Choice
from .typed import ParamType

Options = dict[str, Any]


class Policy(NamedTuple):
    """One policy: its name, its path below a namespace and below a topic ("" if it has none), and how it is set.

    `body` makes the request's JSON of the command's options. Without `options` there is one VALUE, of `type`.
    """

    name: str
    namespace: str
    topic: str
    help: str
    type: ParamType[Any] = click.IntRange(0)
    options: tuple[Callable[[Decorated], Decorated], ...] = ()
    body: Callable[[Options], Any] = lambda given: given["value"]
    method: str = "POST"  # that sets a namespace's
    removable: bool = True


def _option(*names: str, **more: Any) -> Callable[[Decorated], Decorated]:
    return click.option(*names, show_default="default" in more, **more)


def _retention(given: Options) -> dict[str, int]:
    seconds, size = given["time"], given["size"]
    return {
        "retentionTimeInMinutes": seconds if seconds < 1 else -(-seconds // 60),
        "retentionSizeInMB": size if size < 1 else -(-size // (1 << 20)),
    }


def _dispatch_rate(given: Options) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": given["messages"],
        "dispatchThrottlingRateInByte": given["size"],
        "ratePeriodInSecond": given["period"],
    }


def _auto_topics(given: Options) -> dict[str, Any]:
    partitions = given["partitions"]
    if not given["enable"]:
        return {"allowAutoTopicCreation": False}
    kind = {"topicType": "partitioned", "defaultNumPartitions": partitions}
    return {"allowAutoTopicCreation": True, **(kind if partitions else {"topicType": "non-partitioned"})}


_enable = _option("--enable/--disable", "-e/-d", "enable", required=True, help="Whether.")
_rate = (
    _option("--messages", "messages", type=int, default=-1, help="Of each period."),
    _option(
        "--bytes",
        "size",
        type=SIZE,
        default=-1,
        help="512K, 10M; of each period.",
    ),
    _option("--period", "period", type=DURATION, default=1, help="10s, 1m."),
)

POLICIES: Final = (
    Policy(
        "retention", "retention", "retention", "how long, and up to which size, acknowledged messages are kept",
        options=(
            _option("--time", "-t", type=DURATION, required=True, help="30m, 12h, 7d; -1 without end, 0 not at all."),
            _option("--size", "-s", type=SIZE, required=True, help="100M, 10G; -1 without bound, 0 nothing."),
        ),
        body=_retention,
    ),
    Policy(
        "message-ttl", "messageTTL", "messageTTL", "after which time messages count as acknowledged (1h, 3d; 0 never)",
        DURATION,
    ),
    Policy(
        "deduplication", "deduplication", "deduplicationEnabled", "whether repeated sequence ids are dropped",
        options=(_enable,), body=lambda given: given["enable"],
    ),
    Policy(
        "max-producers-per-topic", "maxProducersPerTopic", "maxProducers", "the most producers of a topic",
    ),
    Policy(
        "max-consumers-per-topic", "maxConsumersPerTopic", "maxConsumers", "the most consumers of a topic",
    ),
    Policy(
        "max-consumers-per-subscription", "maxConsumersPerSubscription", "maxConsumersPerSubscription",
        "the most consumers of a subscription",
    ),
    Policy(
        "max-subscriptions-per-topic", "maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic",
        "the most subscriptions of a topic",
    ),
    Policy(
        "max-topics-per-namespace", "maxTopicsPerNamespace", "", "the most topics, partitions counted each",
    ),
    Policy(
        "max-unacked-messages-per-consumer", "maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer",
        "the most unacknowledged messages of a Shared or Key_Shared consumer",
    ),
    Policy(
        "compaction-threshold", "compactionThreshold", "compactionThreshold",
        "after how many bytes (100M) a topic is compacted by itself, 0 for never", SIZE,
        method="PUT",
    ),
    Policy(
        "publish-rate", "publishRate", "publishRate", "how fast messages may be published to a topic",
        options=(
            _option("--messages", "messages", type=int, default=-1, help="Of each second."),
            _option("--bytes", "size", type=SIZE, default=-1, help="512K, 10M; of each second."),
        ),
        body=lambda given: {
            "publishThrottlingRateInMsg": given["messages"], "publishThrottlingRateInByte": given["size"],
        },
    ),
    Policy(
        "dispatch-rate", "dispatchRate", "dispatchRate", "how fast a topic delivers, over all its subscriptions",
        options=_rate, body=_dispatch_rate,
    ),
    Policy(
        "subscription-dispatch-rate", "subscriptionDispatchRate", "subscriptionDispatchRate",
        "how fast each subscription delivers", options=_rate, body=_dispatch_rate,
    ),
    Policy(
        "auto-topic-creation", "autoTopicCreation", "",
        "whether a topic is created when it is first used, and with how many partitions",
        options=(
            _enable,
            _option("--partitions", "partitions", type=click.IntRange(0), default=0, help="0 for a topic without."),
        ),
        body=_auto_topics,
    ),
    Policy(
        "auto-subscription-creation", "autoSubscriptionCreation", "autoSubscriptionCreation",
        "whether a consumer may create a durable subscription",
        options=(_enable,), body=lambda given: {"allowAutoSubscriptionCreation": given["enable"]},
    ),
    Policy(
        "subscription-types-enabled", "subscriptionTypesEnabled", "subscriptionTypesEnabled",
        "which types subscriptions may have (Exclusive,Shared); all where none is named", click.STRING,
        body=lambda given: [word for word in given["value"].replace(",", " ").split() if word],
    ),
    Policy(
        "schema-compatibility-strategy", "schemaCompatibilityStrategy", "", "when a new schema may follow those before",
        Choice(
            "ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE",
            "FORWARD_TRANSITIVE", "FULL_TRANSITIVE", "UNDEFINED",
        ),
        method="PUT", removable=False,
    ),
    Policy(
        "schema-validation-enforce", "schemaValidationEnforced", "",
        "whether messages must have a schema where their topic has one",
        options=(_enable,), body=lambda given: given["enable"], removable=False,
    ),
    Policy(
        "is-allow-auto-update-schema", "isAllowAutoUpdateSchema", "", "whether producers may bring new schemas",
        options=(_enable,), body=lambda given: given["enable"], removable=False,
    ),
)  # fmt: skip

QUOTA_TYPES: Final = ("destination_storage", "message_age")
QUOTA_ACTIONS: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")


def paths(policies: Sequence[Policy], topic: bool) -> dict[str, str]:
    """By name, the paths of those that a topic has, or a namespace."""
    found = {policy.name: policy.topic if topic else policy.namespace for policy in policies}
    return {name: path for name, path in found.items() if path}
