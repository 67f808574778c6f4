"""`penstock policies list|get|set|remove`: what a namespace or a topic decides, policy by policy, one row of a table each."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import click

from penstock.client.http import HttpClient

from . import output
from .connection import connected
from .groups import Group
from .options import Decorated, with_options
from .quantities import DURATION, SIZE
from .spelling import Choice
from .targets import Target, target_argument
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


_applied = click.option("--applied", is_flag=True, help="Of a topic: what holds, whoever decided it.")
_quota_type = click.option(
    "--type", "-t", "kind", type=Choice(*QUOTA_TYPES), default=QUOTA_TYPES[0], show_default=True
)


@click.group("policies", cls=Group)
def policies_command() -> None:
    """Show and decide what holds for a namespace or a topic.

    TARGET is a namespace, as public/default, or a topic, as orders or public/default/orders. A topic's policy goes
    before its namespace's, and that before the server's configuration.
    """


@policies_command.group("get", cls=Group)
def get_policy() -> None:
    """Show one policy of TARGET."""


@policies_command.group("set", cls=Group)
def set_policy() -> None:
    """Decide one policy of TARGET."""


@policies_command.group("remove", cls=Group)
def remove_policy() -> None:
    """Remove one policy of TARGET: the level above it applies."""


@policies_command.command("list")
@target_argument
@_applied
@connected
def list_policies(client: HttpClient, target: Target, applied: bool) -> None:
    """List every policy of TARGET; one that it does not decide has no value."""
    found = {**paths(POLICIES, target.topic), "backlog-quota": "backlogQuotaMap"}
    rows = (
        {"policy": name, "value": client.call("GET", f"{target.path}/{path}", params=_query(target, applied))}
        for name, path in sorted(found.items())
    )
    output.rows(("policy", "value"), rows, "")


def _query(target: Target, applied: bool) -> dict[str, str]:
    """Raises UsageError if the effective value of a namespace is asked for."""
    if applied and not target.topic:
        raise click.UsageError("--applied is for topics: a namespace shows what it decides")
    return {"applied": "true"} if applied else {}


def _path(policy: Policy, target: Target) -> str:
    """The policy's path below the target; raises UsageError if it has none."""
    segment = policy.topic if target.topic else policy.namespace
    if not segment:
        of = "a namespace" if target.topic else "a topic"
        raise click.UsageError(f"{policy.name} is a policy of {of}, and {target.name} is none")
    return f"{target.path}/{segment}"


def _add(policy: Policy) -> None:
    """Give the three groups a command for a policy."""

    def get(client: HttpClient, target: Target, applied: bool) -> None:
        value = client.call("GET", _path(policy, target), params=_query(target, applied))
        output.record({"policy": policy.name, "value": value})

    def put(client: HttpClient, target: Target, **given: Any) -> None:
        body = policy.body(given)
        client.call("POST" if target.topic else policy.method, _path(policy, target), body=body)
        output.done(
            f"decided {policy.name} of {target.name}", target=target.name, policy=policy.name, value=body
        )

    def remove(client: HttpClient, target: Target) -> None:
        client.call("DELETE", _path(policy, target))
        output.done(
            f"{target.name} leaves {policy.name} to what is above", target=target.name, removed=policy.name
        )

    value = (click.argument("value", type=policy.type),)
    _register(policy, get_policy, f"Say {policy.help}.", get, target_argument, _applied)
    _register(policy, set_policy, f"Decide {policy.help}.", put, target_argument, *(policy.options or value))
    if policy.removable:
        _register(policy, remove_policy, f"Do not decide {policy.help}.", remove, target_argument)


def _register(
    policy: Policy, group: click.Group, help: str, run: Callable[..., Any], *options: Callable[..., Any]
) -> None:
    group.add_command(click.command(policy.name, help=help)(with_options(connected(run), options)))


for _policy in POLICIES:
    _add(_policy)


@get_policy.command("backlog-quota", help="Say how large and how old a backlog may be.")
@target_argument
@_applied
@connected
def get_quota(client: HttpClient, target: Target, applied: bool) -> None:
    found = client.call("GET", f"{target.path}/backlogQuotaMap", params=_query(target, applied))
    output.record({"policy": "backlog-quota", "value": found})


@set_policy.command("backlog-quota")
@target_argument
@_quota_type
@click.option("--limit-size", "size", type=SIZE, help="10G; of the type destination_storage.")
@click.option("--limit-time", "age", type=DURATION, help="3d; of the type message_age.")
@click.option(
    "--policy", "-p", "action", type=Choice(*QUOTA_ACTIONS), required=True, help="What happens beyond it."
)
@connected
def set_quota(
    client: HttpClient, target: Target, kind: str, size: int | None, age: int | None, action: str
) -> None:
    """Decide how large or how old a backlog may be, and what happens then."""
    by_size = kind == QUOTA_TYPES[0]
    if (size is None) == by_size or (age is None) != by_size:
        raise click.UsageError(
            "--type destination_storage takes --limit-size; --type message_age takes --limit-time"
        )
    body = {"policy": action, "limitSize": size} if by_size else {"policy": action, "limitTime": age}
    client.call("POST", f"{target.path}/backlogQuota", params={"backlogQuotaType": kind}, body=body)
    output.done(
        f"decided backlog-quota of {target.name}", target=target.name, policy="backlog-quota", value=body
    )


@remove_policy.command("backlog-quota")
@target_argument
@_quota_type
@connected
def remove_quota(client: HttpClient, target: Target, kind: str) -> None:
    """Remove a backlog quota: the level above applies."""
    client.call("DELETE", f"{target.path}/backlogQuota", params={"backlogQuotaType": kind})
    output.done(
        f"{target.name} leaves backlog-quota to what is above", target=target.name, removed="backlog-quota"
    )


@remove_policy.command("all")
@target_argument
@connected
def remove_all(client: HttpClient, target: Target) -> None:
    """Leave every policy of a topic to its namespace."""
    if not target.topic:
        raise click.UsageError(f"all is for topics, and {target.name} is a namespace")
    client.call("DELETE", f"{target.path}/policies")
    output.done(f"{target.name} leaves every policy to its namespace", target=target.name, removed="all")
