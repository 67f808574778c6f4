"""`penstock subscriptions …`: the subscriptions of a topic, their positions, and changes of them."""

from collections.abc import Iterator
from typing import Any, Final

import click

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path, subscription_admin_path
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName

from . import output
from .actions import (
    SUBSCRIPTION,
    Action,
    add_actions,
    subscription_argument,
    sure,
    yes_option,
)
from .connection import connected, topic_argument
from .groups import Group
from .messages_shown import shown
from .properties import clear_option, set_option
from .quantities import DURATION, moment_ms, position
from .topic_figures import NO_TYPE, statistics

ACTIONS: Final = (
    Action(
        "delete",
        "DELETE",
        "",
        "Delete SUBSCRIPTION of TOPIC with its backlog.",
        "deleted {}",
        "delete the subscription {} with its backlog",
        flags=(("--force", "force", "Also while consumers are connected: they are disconnected."),),
    ),
    Action(
        "skip-all",
        "POST",
        "/skip_all",
        "Count the whole backlog of SUBSCRIPTION as acknowledged.",
        "skipped the backlog of {}",
        "skip the whole backlog of {}",
    ),
    Action(
        "analyze-backlog",
        "POST",
        "/analyzeBacklog",
        "Count the entries and messages in the backlog of SUBSCRIPTION.",
    ),
)
MESSAGE_COLUMNS: Final = ("messageId", "publishTime", "key", "properties", "payload", "payloadBase64")
COLUMNS: Final = ("subscription", "type", "backlog", "unacknowledged", "delayed", "rate_out", "consumers")


@click.group("subscriptions", cls=Group)
def subscriptions_command() -> None:
    """List, create, move and delete subscriptions."""


add_actions(subscriptions_command, SUBSCRIPTION, ACTIONS)


@subscriptions_command.command("list")
@topic_argument
@click.option(
    "--names", "only_names", is_flag=True, help="Only their names: for who may consume, and not administer."
)
@connected
def list_subscriptions(client: HttpClient, topic: TopicName, only_names: bool) -> None:
    """List the subscriptions of TOPIC, with their backlogs and consumers."""
    if only_names:
        found = client.call("GET", f"{admin_path(topic)}/subscriptions")
        rows = [{"subscription": name} for name in found]
    else:
        rows = described(statistics(client, topic)["subscriptions"])
    output.rows(COLUMNS[:1] if only_names else COLUMNS, rows, f"{topic} has no subscriptions")


def described(subscriptions: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each subscription of a topic's statistics."""
    return [
        {
            "subscription": name,
            "type": None if one["type"] in NO_TYPE else one["type"],
            "backlog": one["msgBacklog"],
            "unacknowledged": one["unackedMessages"],
            "delayed": one["msgDelayed"],
            "rate_out": one["msgRateOut"],
            "consumers": [consumer.get("consumerName") or "" for consumer in one["consumers"]],
        }
        for name, one in subscriptions.items()
    ]


@subscriptions_command.command()
@topic_argument
@subscription_argument
@click.option(
    "--from", "start", default="latest", show_default=True, metavar="WHERE",
    help="earliest, latest, a message id (after it), or LEDGER:ENTRY (at it).",
)  # fmt: skip
@click.option("--group", help="Before Kafka: begin where this consumer group goes on.")
@connected
def create(client: HttpClient, topic: TopicName, subscription: str, start: str, group: str | None) -> None:
    """Create SUBSCRIPTION of TOPIC."""
    begin = position(start) if group is None else {"group": group}
    client.call("PUT", subscription_admin_path(topic, subscription), body=begin)
    output.done(f"created {subscription} of {topic}", topic=str(topic), subscription=subscription)


@subscriptions_command.command()
@topic_argument
@subscription_argument
@click.option(
    "--to", required=True, metavar="WHERE",
    help="earliest, latest, a time (2026-01-31T08:00, or 2h ago as 2h), a message id (after it), LEDGER:ENTRY (at it).",
)  # fmt: skip
@yes_option
@connected
def reset(client: HttpClient, topic: TopicName, subscription: str, to: str, yes: bool) -> None:
    """Let SUBSCRIPTION go on at another place: what lies after it is delivered again."""
    path = f"{subscription_admin_path(topic, subscription)}/resetcursor"
    sure(yes, f"move {subscription} of {topic} to {to}")
    moment = moment_ms(to)
    if moment is None:
        client.call("POST", path, body=position(to))
    else:
        client.call("POST", f"{path}/{moment}")
    output.done(
        f"{subscription} of {topic} goes on at {to}", topic=str(topic), subscription=subscription, to=to
    )


@subscriptions_command.command()
@topic_argument
@subscription_argument
@click.argument("count", type=click.IntRange(1))
@yes_option
@connected
def skip(client: HttpClient, topic: TopicName, subscription: str, count: int, yes: bool) -> None:
    """Skip the next COUNT messages of the backlog; of a partition, if the topic has some."""
    sure(yes, f"skip {count:,} messages of {subscription} of {topic}")
    client.call("POST", f"{subscription_admin_path(topic, subscription)}/skip/{count}")
    output.done(
        f"skipped {count:,} messages of {subscription} of {topic}",
        topic=str(topic),
        subscription=subscription,
        skipped=count,
    )


@subscriptions_command.command()
@topic_argument
@click.argument("subscription", required=False)
@click.option("--older-than", "age", type=DURATION, metavar="TIME", help="10m, 2h, 3d, 1w.")
@click.option("--until", metavar="MESSAGE_ID", help="Up to a message and with it, instead.")
@click.option("--all", "every", is_flag=True, help="Of every subscription.")
@yes_option
@connected
def expire(
    client: HttpClient,
    topic: TopicName,
    subscription: str | None,
    age: int | None,
    until: str | None,
    every: bool,
    yes: bool,
) -> None:
    """Expire older messages for SUBSCRIPTION or for all of TOPIC: they count as acknowledged."""
    if (age is None) == (until is None) or (subscription is None) != every or (every and until is not None):
        raise click.UsageError("name --older-than or --until, and SUBSCRIPTION or --all (with --older-than)")
    who = "every subscription" if subscription is None else subscription
    sure(yes, f"expire messages of {who} of {topic}")
    if subscription is None:
        client.call("POST", f"{admin_path(topic)}/all_subscription/expireMessages/{age}")
    else:
        path = f"{subscription_admin_path(topic, subscription)}/expireMessages"
        if until is None:
            client.call("POST", f"{path}/{age}")
        else:
            client.call("POST", path, body=position(until))
    output.done(f"expired messages of {who} of {topic}", topic=str(topic), subscription=subscription)


@subscriptions_command.command()
@topic_argument
@subscription_argument
@click.option(
    "--count", "-n", type=click.IntRange(1), default=1, show_default=True, help="So many, of each partition."
)
@connected
def peek(client: HttpClient, topic: TopicName, subscription: str, count: int) -> None:
    """Show the next messages of a backlog, and leave them there."""
    number = client.partitions(topic)
    found = [
        message
        for one in ([topic.of_partition(partition) for partition in range(number)] if number else [topic])
        for message in _peeked(client, subscription_admin_path(one, subscription), count)
    ]
    there = {name for message in found for name in message}
    output.rows([name for name in MESSAGE_COLUMNS if name in there], found, f"{subscription} has no backlog")


def _peeked(client: HttpClient, path: str, count: int) -> Iterator[dict[str, Any]]:
    for place in range(1, count + 1):
        try:
            yield shown(*client.fetch("GET", f"{path}/position/{place}"))
        except RemoteError as error:
            of_cluster = not error.code and error.message.startswith("Message not found")
            if error.kind is ErrorKind.MESSAGE_NOT_FOUND or of_cluster:
                return
            raise


@subscriptions_command.command()
@topic_argument
@subscription_argument
@set_option(help="Instead of all before; may be repeated.")
@clear_option
@connected
def properties(
    client: HttpClient, topic: TopicName, subscription: str, given: dict[str, str], clear: bool
) -> None:
    """Show the properties of SUBSCRIPTION, or replace them."""
    path = f"{subscription_admin_path(topic, subscription)}/properties"
    if given or clear:
        client.call("PUT", path, body=given)
    output.record(client.call("GET", path))
