"""`penstock topics …`."""

from typing import Any

import click

from penstock.client.http import HttpClient
from penstock.client.paths import admin_path
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName

from . import output
from .connection import connected, topic_argument
from .groups import Group


@click.group("topics", cls=Group)
def topics_command() -> None:
    """List, create, describe and delete topics."""


@topics_command.command("list")
@click.argument("namespace", default="public/default")
@click.option("--non-persistent", is_flag=True, help="Those that are kept in memory only.")
@connected
def list_topics(client: HttpClient, namespace: str, non_persistent: bool) -> None:
    """List the topics of NAMESPACE [public/default]."""
    name = NamespaceName.parse(namespace)
    domain = "non-persistent" if non_persistent else "persistent"
    found: list[str] = client.call("GET", f"/admin/v2/{domain}/{name}")
    counts: dict[str, int] = {}
    for topic in found:
        parsed = TopicName.parse(topic)
        counts[str(parsed.base)] = counts.get(str(parsed.base), 0) + (parsed.partition >= 0)
    rows = [_summary(client, TopicName.parse(topic)) for topic in sorted(counts)]
    columns = ("topic", "partitions", "messages", "bytes", "subscriptions", "schema")
    output.rows(columns, rows, f"{name} has no topics")


def _summary(client: HttpClient, topic: TopicName) -> dict[str, Any]:
    found = client.call("GET", admin_path(topic))
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
@click.option("--partitions", type=click.IntRange(0), default=0, help="How many; 0 for a topic without. [0]")
@connected
def create(client: HttpClient, topic: TopicName, partitions: int) -> None:
    """Create TOPIC."""
    client.create_topic(topic, partitions)
    output.done(f"created {topic}", topic=str(topic), partitions=partitions)


@topics_command.command()
@topic_argument
@click.option("--force", is_flag=True, help="Also while clients are connected.")
@connected
def delete(client: HttpClient, topic: TopicName, force: bool) -> None:
    """Delete TOPIC with everything in it."""
    path = f"{admin_path(topic)}/partitions" if client.partitions(topic) else admin_path(topic)
    client.call("DELETE", path, params={"force": "true" if force else None})
    output.done(f"deleted {topic}", deleted=str(topic))


@topics_command.command()
@topic_argument
@connected
def describe(client: HttpClient, topic: TopicName) -> None:
    """Describe TOPIC."""
    output.record(client.call("GET", admin_path(topic)))


@topics_command.command()
@topic_argument
@connected
def stats(client: HttpClient, topic: TopicName) -> None:
    """Rates, backlog and consumers of TOPIC."""
    found = client.call("GET", f"{admin_path(topic)}/stats")
    if not output.for_people():
        output.line(found)
        return
    subscriptions = found.pop("subscriptions")
    found = {name: value for name, value in found.items() if not isinstance(value, dict)}
    found["publishers"] = [one["producerName"] for one in found["publishers"]]
    output.record(found)
    click.echo()
    rows = [
        {
            "subscription": name,
            "type": one["type"],
            "backlog": one["msgBacklog"],
            "unacknowledged": one["unackedMessages"],
            "delayed": one["msgDelayed"],
            "rate_out": one["msgRateOut"],
            "consumers": [consumer["consumerName"] for consumer in one["consumers"]],
        }
        for name, one in subscriptions.items()
    ]
    columns = ("subscription", "type", "backlog", "unacknowledged", "delayed", "rate_out", "consumers")
    output.rows(columns, rows, "no subscriptions")


@topics_command.command()
@topic_argument
@click.option("--set", "count", type=click.IntRange(1), help="Let the topic grow to so many.")
@connected
def partitions(client: HttpClient, topic: TopicName, count: int | None) -> None:
    """Show the partitions of TOPIC, or let it have more."""
    if count is not None:
        client.call("POST", f"{admin_path(topic)}/partitions", body=count)
    found = client.partitions(topic)
    rows = []
    for number in range(max(1, found)):
        log = topic.of_partition(number) if found else topic
        state = client.call("GET", f"{admin_path(log)}/internalStats")
        rows.append(
            {
                "partition": number,
                "earliest": state["firstOffset"],
                "latest": state["nextOffset"],
                "messages": state["nextOffset"] - state["firstOffset"],
                "bytes": state["totalSize"],
            }
        )
    output.rows(("partition", "earliest", "latest", "messages", "bytes"), rows, "")


@topics_command.command()
@topic_argument
@connected
def terminate(client: HttpClient, topic: TopicName) -> None:
    """Let no message follow in TOPIC."""
    last = client.call("POST", f"{admin_path(topic)}/terminate")
    output.done(f"terminated {topic}", topic=str(topic), last=last)
