"""`penstock topics …`: which there are, how they are, and how many partitions they have."""

from typing import Any

import click

from penstock.client.http import HttpClient
from penstock.client.paths import admin_path
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName

from . import output
from .actions import names, of_each, sure, yes_option
from .connection import NamespaceType, connected, topic_argument
from .groups import Group
from .properties import pairs_option
from .subscriptions import COLUMNS, described
from .topic_actions import add_topic_actions
from .topic_figures import extent, overview, statistics


@click.group("topics", cls=Group)
def topics_command() -> None:
    """List, create, describe and delete topics."""


@topics_command.command("list")
@click.argument("name", metavar="NAMESPACE", type=NamespaceType(), default="public/default")
@click.option("--non-persistent", is_flag=True, help="Those that are kept in memory only.")
@click.option("--partitioned", is_flag=True, help="Only the names of those that have partitions.")
@connected
def list_topics(client: HttpClient, name: NamespaceName, non_persistent: bool, partitioned: bool) -> None:
    """List the topics of NAMESPACE [public/default]."""
    domain = "non-persistent" if non_persistent else "persistent"
    if partitioned:
        listed = client.call("GET", f"/admin/v2/{domain}/{name}/partitioned")
        names(listed, f"{name} has no partitioned topics", "topic")
        return
    found: list[str] = client.call("GET", f"/admin/v2/{domain}/{name}")
    counts: dict[str, int] = {}
    for topic in found:
        parsed = TopicName.parse(topic)
        counts[str(parsed.base)] = counts.get(str(parsed.base), 0) + (parsed.partition >= 0)
    rows = list(of_each(sorted(counts), lambda topic: _summary(client, topic)).values())
    columns = ("topic", "partitions", "messages", "bytes", "subscriptions", "schema")
    output.rows(columns, rows, f"{name} has no topics")


def _summary(client: HttpClient, topic: TopicName) -> dict[str, Any]:
    found = overview(client, topic)
    usual = topic.namespace_name == DEFAULT_NAMESPACE and topic.persistent
    return {
        "topic": topic.local if usual and output.for_people() else str(topic),
        "partitions": found["partitions"],
        "messages": found["messages"],
        "bytes": found["storageSize"],
        "subscriptions": found["subscriptions"],
        "schema": found["schemaType"],
    }


@topics_command.command()
@topic_argument
@click.option(
    "--partitions", "-p", type=click.IntRange(0), default=0, help="How many; 0 for a topic without. [0]"
)
@pairs_option("--property", "properties", help="May be repeated.")
@connected
def create(client: HttpClient, topic: TopicName, partitions: int, properties: dict[str, str]) -> None:
    """Create TOPIC."""
    if not properties:
        client.create_topic(topic, partitions)
    elif partitions:
        body = {"partitions": partitions, "properties": properties}
        client.call("PUT", f"{admin_path(topic)}/partitions", body=body)
    else:
        client.call("PUT", admin_path(topic), body=properties)
    output.done(f"created {topic}", topic=str(topic), partitions=partitions)


@topics_command.command()
@topic_argument
@click.option("--force", "-f", is_flag=True, help="Also while clients are connected.")
@click.option("--keep-schema", is_flag=True, help="Do not delete its schemas.")
@yes_option
@connected
def delete(client: HttpClient, topic: TopicName, force: bool, keep_schema: bool, yes: bool) -> None:
    """Delete TOPIC with everything in it."""
    path = f"{admin_path(topic)}/partitions" if client.partitions(topic) else admin_path(topic)
    sure(yes, f"delete {topic} with everything in it")
    params = {"force": "true" if force else None, "deleteSchema": "false" if keep_schema else None}
    client.call("DELETE", path, params=params)
    output.done(f"deleted {topic}", deleted=str(topic))


@topics_command.command()
@topic_argument
@connected
def describe(client: HttpClient, topic: TopicName) -> None:
    """Describe TOPIC."""
    output.record(overview(client, topic))


@topics_command.command()
@topic_argument
@click.option("--per-partition", is_flag=True, help="Of a partitioned topic: of each partition, too.")
@connected
def stats(client: HttpClient, topic: TopicName, per_partition: bool) -> None:
    """Rates, backlog and consumers of TOPIC."""
    if per_partition:
        params = {"perPartition": "true"}
        found = client.call("GET", f"{admin_path(topic)}/partitioned-stats", params=params)
    else:
        found = statistics(client, topic)
    if not output.for_people():
        output.line(found)
        return
    subscriptions = found.pop("subscriptions")
    found = {name: value for name, value in found.items() if not isinstance(value, dict)}
    found["publishers"] = [one["producerName"] for one in found["publishers"] if one.get("producerName")]
    output.record(found)
    click.echo()
    output.rows(COLUMNS, described(subscriptions), "no subscriptions")


@topics_command.command()
@topic_argument
@click.option("--set", "count", type=click.IntRange(1), help="Let the topic grow to so many.")
@connected
def partitions(client: HttpClient, topic: TopicName, count: int | None) -> None:
    """Show the partitions of TOPIC, or let it have more."""
    if count is not None:
        client.call("POST", f"{admin_path(topic)}/partitions", body=count)
    found = client.partitions(topic)
    logs = [topic.of_partition(number) for number in range(found)] or [topic]
    rows = [extent(client, log) for log in logs]
    output.rows(("partition", "earliest", "latest", "messages", "bytes"), rows, "")


@topics_command.command("internal-stats")
@topic_argument
@connected
def internal_stats(client: HttpClient, topic: TopicName) -> None:
    """The log of TOPIC and its cursors; of each partition, if any."""
    partitioned = topic.partition < 0 and client.partitions(topic)
    output.record(
        client.call(
            "GET", f"{admin_path(topic)}/{'partitioned-internalStats' if partitioned else 'internalStats'}"
        )
    )


add_topic_actions(topics_command)
