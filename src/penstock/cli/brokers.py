"""`penstock brokers …`: the server, how it is, and what it is doing."""

from typing import Final

import click

from penstock.client.http import HttpClient
from penstock.client.paths import proxy_stats_path
from penstock.model.names import TopicName

from . import output
from .actions import Action, Kind, add_actions, names
from .connection import TopicType, connected
from .groups import Group

BROKERS: Final = "/admin/v2/brokers"
SERVER: Final = Kind((), lambda given: "/admin/v2", lambda given: "the server")
ACTIONS: Final = (
    Action(
        "list", "GET", "/brokers", "List the brokers: the server itself, or those of the cluster behind it."
    ),
    Action(
        "health",
        "GET",
        "/brokers/health",
        "Say ok, or why messages cannot be stored (exit code 1).",
    ),
    Action("version", "GET", "/brokers/version", "Show the server's version."),
    Action(
        "configuration",
        "GET",
        "/brokers/configuration/runtime",
        "Show the settings that Pulsar has too, under its names.",
    ),
    Action(
        "leader",
        "GET",
        "/brokers/leaderBroker",
        "Show the broker that leads.",
    ),
    Action("topics", "GET", "/broker-stats/topics", "Show the statistics of the topics in use."),
    Action(
        "metrics", "GET", "/broker-stats/metrics", "Show the rates of each namespace over the last minute."
    ),
    Action("socket-metrics", "GET", "/proxy-stats/metrics", "The same, of WebSocket alone."),
)


@click.group("brokers", cls=Group)
def brokers_command() -> None:
    """Ask how the server is, and what it is doing."""


add_actions(brokers_command, SERVER, ACTIONS)


@brokers_command.command()
@click.argument("topic", type=TopicType(), required=False)
@connected
def sockets(client: HttpClient, topic: TopicName | None) -> None:
    """Show the WebSockets of TOPIC, or of every topic."""
    output.record(
        client.call("GET", "/admin/v2/proxy-stats/stats" if topic is None else proxy_stats_path(topic))
    )


@brokers_command.command()
@click.argument("broker", required=False)
@connected
def namespaces(client: HttpClient, broker: str | None) -> None:
    """Show the namespaces that BROKER serves; the first one by default."""
    cluster = client.call("GET", "/admin/v2/clusters")[0]
    name = broker or client.call("GET", f"{BROKERS}/{cluster}")[0]
    output.record(client.call("GET", f"{BROKERS}/{cluster}/{name}/ownedNamespaces"))


@brokers_command.command()
@click.argument("name", required=False)
@connected
def clusters(client: HttpClient, name: str | None) -> None:
    """List the clusters, or show the addresses of one."""
    if name is None:
        names(client.call("GET", "/admin/v2/clusters"), "there are no clusters", "cluster")
    else:
        output.record(client.call("GET", f"/admin/v2/clusters/{name}"))
