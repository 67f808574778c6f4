"""`penstock consume TOPIC --subscription NAME`."""

import signal
from typing import Any, Final

import click

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import subscription_path
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument

BATCH: Final = 500
FOLLOW_MS: Final = 20_000  # of one long poll, well within the client's timeout
TERMINATED: Final = 143  # what shells say of a command that SIGTERM ended
FIRST_MS: Final = 1000  # what is there already comes within this


@click.command("consume")
@topic_argument
@click.option("--subscription", "-s", required=True, help="Created when it is not there.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["Exclusive", "Shared", "Failover", "Key_Shared"], case_sensitive=False),
    default="Exclusive",
    show_default=True,
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Where a new subscription begins.",
)
@click.option("--ack/--no-ack", default=True, help="Acknowledge what was printed. [ack]")
@click.option("--follow", is_flag=True, help="Wait for what is published later.")
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--name", help="The consumer's name.")
@click.option("--create", is_flag=True, help="Create TOPIC when it does not exist; else that is an error.")
@connected
def command(
    client: HttpClient,
    topic: TopicName,
    subscription: str,
    kind: str,
    start: str,
    ack: bool,
    follow: bool,
    count: int | None,
    name: str | None,
    create: bool,
) -> None:
    """Consume TOPIC under a subscription; what was printed is acknowledged."""
    signal.signal(signal.SIGTERM, _end)
    if not create:
        client.partitions(topic)  # raises where there is no such topic: subscribing would create it
    path = subscription_path(topic, subscription)
    wanted = {"subscription_type": kind, "initial_position": start, "receiver_queue_size": BATCH}
    created = client.call("POST", path, body={**wanted, **({} if name is None else {"name": name})})
    consumer = f"{path}/consumer/{created['id']}"
    left = count
    try:
        while left is None or left > 0:
            found = _fetch(client, consumer, BATCH if left is None else min(BATCH, left), follow)
            output.messages(found)
            if ack and found:
                ids = [message["messageId"] for message in found]
                client.call("POST", f"{path}/cursor", body={"type": "individual", "messageIds": ids})
            if not found and not follow:
                break
            if not ack and not follow and len(found) == BATCH:
                break  # the consumer's queue is full of what was not acknowledged
            left = None if left is None else left - len(found)
    finally:
        _leave(client, consumer)


def _fetch(client: HttpClient, consumer: str, count: int, follow: bool) -> list[dict[str, Any]]:
    wait = FOLLOW_MS if follow else FIRST_MS
    answer = client.call("GET", f"{consumer}/messages", params={"max_messages": count, "timeout": wait})
    found: list[dict[str, Any]] = answer["messages"]
    return found


def _end(*_: object) -> None:
    """Ended by another program (`timeout`, a supervisor): leave as after Ctrl-C, lest the consumer stay."""
    raise click.exceptions.Exit(TERMINATED)


def _leave(client: HttpClient, consumer: str) -> None:
    """Let the others have what was not acknowledged, at once rather than when the consumer expires."""
    try:
        client.call("DELETE", consumer)
    except RemoteError:
        pass  # it is gone already
