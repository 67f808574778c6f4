"""`penstock topics …`: actions on one topic, its properties, and its messages by position."""

from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.client.paths import admin_path, lookup_path
from penstock.model.names import TopicName

from . import output
from .actions import TOPIC, Action, add_actions, sure, yes_option
from .connection import connected, topic_argument
from .messages_shown import shown
from .properties import clear_option, remove_option, set_option
from .quantities import MOMENT, position
from .spelling import Choice

ACTIONS: Final = (
    Action(
        "unload",
        "PUT",
        "/unload",
        "Disconnect the producers and consumers of TOPIC, which come back by themselves.",
        "unloaded {}",
    ),
    Action(
        "truncate",
        "DELETE",
        "/truncate",
        "Delete every message of TOPIC, acknowledged or not; its subscriptions stay.",
        "deleted the messages of {}",
        "delete every message of {}",
    ),
    Action(
        "trim",
        "POST",
        "/trim",
        "Let go of the acknowledged messages of TOPIC that retention does not keep, now.",
        "trimmed {}",
        "delete the acknowledged messages of {} that retention does not keep",
    ),
    Action("compact", "PUT", "/compaction", "Begin to compact TOPIC.", "{} is being compacted"),
    Action("compaction-status", "GET", "/compaction", "Say how the last compaction of TOPIC went."),
    Action("last-message-id", "GET", "/lastMessageId", "Show the id of the last message of TOPIC."),
    Action(
        "internal-info",
        "GET",
        "/internal-info",
        "Show the ledger and the cursors of TOPIC.",
    ),
)

# As Pulsar's MessageId has the ends of a log; its operation knows no words for them.
_ENDS: Final = {
    "earliest": {"ledgerId": -1, "entryId": -1, "partitionIndex": -1},
    "latest": {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1},
}


def add_topic_actions(group: click.Group) -> None:
    """Give the group `topics` these commands."""
    add_actions(group, TOPIC, ACTIONS)
    for command in (terminate, lookup, message_id, examine, message, backlog_size, properties):
        group.add_command(command)


@click.command()
@topic_argument
@yes_option
@connected
def terminate(client: HttpClient, topic: TopicName, yes: bool) -> None:
    """Let no message follow in TOPIC; answers the last message's id."""
    sure(yes, f"let no message follow in {topic}")
    last = client.call("POST", f"{admin_path(topic)}/terminate")
    output.done(f"terminated {topic}", topic=str(topic), last=last)


@click.command()
@topic_argument
@connected
def lookup(client: HttpClient, topic: TopicName) -> None:
    """Say which server has TOPIC, by its addresses."""
    output.record(client.call("GET", lookup_path(topic)))


@click.command("message-id")
@topic_argument
@click.option(
    "--at",
    "at",
    type=MOMENT,
    required=True,
    metavar="TIME",
    help="2026-01-31T08:00, or 2h (ago).",
)
@connected
def message_id(client: HttpClient, topic: TopicName, at: int) -> None:
    """Show the id of the first message of TOPIC that was published at or after a time."""
    output.record(client.call("GET", f"{admin_path(topic)}/messageid/{at}"))


@click.command()
@topic_argument
@click.option(
    "--from",
    "start",
    type=Choice("earliest", "latest"),
    default="latest",
    show_default=True,
)
@click.option(
    "--position",
    "number",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Counted from 1.",
)
@connected
def examine(client: HttpClient, topic: TopicName, start: str, number: int) -> None:
    """Show the n-th message of TOPIC from its begin or its end."""
    params = {"initialPosition": start, "messagePosition": number}
    output.record(shown(*client.fetch("GET", f"{admin_path(topic)}/examinemessage", params=params)))


@click.command()
@topic_argument
@click.argument("ledger", type=click.IntRange(0))
@click.argument("entry", type=click.IntRange(0))
@connected
def message(client: HttpClient, topic: TopicName, ledger: int, entry: int) -> None:
    """Show what TOPIC has at a place of its log; a batch as a whole."""
    output.record(shown(*client.fetch("GET", f"{admin_path(topic)}/ledger/{ledger}/entry/{entry}")))


@click.command("backlog-size")
@topic_argument
@click.argument("start", metavar="MESSAGE_ID", default="earliest")
@connected
def backlog_size(client: HttpClient, topic: TopicName, start: str) -> None:
    """Say how many bytes TOPIC has from a message on: earliest, latest or LEDGER:ENTRY."""
    size = client.call("PUT", f"{admin_path(topic)}/backlogSize", body=_ENDS.get(start) or position(start))
    output.record({"bytes": size})


@click.command()
@topic_argument
@set_option()
@remove_option
@clear_option
@yes_option
@connected
def properties(
    client: HttpClient,
    topic: TopicName,
    given: dict[str, str],
    removed: tuple[str, ...],
    clear: bool,
    yes: bool,
) -> None:
    """Show the properties of TOPIC, or change them."""
    path = f"{admin_path(topic)}/properties"
    if clear:
        sure(yes, f"remove all properties of {topic}")
        client.call("DELETE", path)
    for name in removed:
        client.call("DELETE", path, params={"key": name})
    if given:
        client.call("PUT", path, body=given)
    found: dict[str, Any] = client.call("GET", path)
    output.record(found)
