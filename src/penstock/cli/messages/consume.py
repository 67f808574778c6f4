"""`penstock consume`."""

from typing import Final

import click

from penstock.cli.connection import connected, topic_argument
from penstock.cli.output import say
from penstock.cli.progress import Progress, watched
from penstock.client.http import HttpClient
from penstock.client.paths import subscription_path
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName

from .acknowledging import Acknowledging
from .ending import Ending
from .printing import decode, ids, printer
from .read import FOLLOW_MS, encoding_option

BATCH: Final = 4000  # messages a request
WINDOW: Final = 10 * BATCH  # messages that are out: printed, but not acknowledged yet, or not at all
FIRST_MS: Final = 1000  # of a consumer that does not follow: stored messages come within this


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
@click.option(
    "--ack/--no-ack",
    default=True,
    help=f"Acknowledge what was printed; without it at most {WINDOW:,} messages come. [ack]",
)
@click.option("--follow", is_flag=True, help="Wait for what is published later.")
@click.option(
    "--timeout",
    metavar="MS",
    type=click.IntRange(1, FOLLOW_MS),
    help="End when nothing came for so long. [1000]",
)
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--name", help="The consumer's name.")
@click.option("--create", is_flag=True, help="Create TOPIC when it does not exist; else that is an error.")
@encoding_option
@connected
def consume_command(
    client: HttpClient,
    topic: TopicName,
    subscription: str,
    kind: str,
    start: str,
    ack: bool,
    follow: bool,
    timeout: int | None,
    count: int | None,
    name: str | None,
    create: bool,
    encoding: str | None,
) -> None:
    """Consume TOPIC under a subscription; printed messages are acknowledged, also if Ctrl-C ends it."""
    if follow and timeout is not None:
        raise click.UsageError("--follow and --timeout exclude one another")
    if not ack and count is not None and count > WINDOW:
        raise click.UsageError(
            f"--no-ack is for {WINDOW:,} messages at most: more are not sent unacknowledged"
        )
    if not create:
        client.partitions(topic)  # raises for an unknown topic: subscribing would create it
    path = subscription_path(topic, subscription)
    asked = {"subscription_type": kind, "initial_position": start, "receiver_queue_size": WINDOW}
    with Ending() as ending:
        created = client.call("POST", path, body={**asked, **({} if name is None else {"name": name})})
        consumer = f"{path}/consumer/{created['id']}"
        wait = FOLLOW_MS if follow else timeout or FIRST_MS
        show, left = printer(), count if ack else min(count or WINDOW, WINDOW)
        try:
            with (
                Progress("consumed", count, shown=watched(silent_output=False)) as progress,
                Acknowledging(client.access, f"{path}/cursor") as acknowledging,
            ):
                while left is None or left > 0:
                    wanted = BATCH if left is None else min(BATCH, left)
                    params = {"max_messages": wanted, "timeout": wait, "encoding": encoding}
                    found = decode(client.fetch("GET", f"{consumer}/messages", params=params)[0]).messages
                    if not found and not follow:
                        break
                    with ending.held():
                        show(found)
                        if ack and found:
                            acknowledging.add(ids(found))
                    progress.add(len(found))
                    left = None if left is None else left - len(found)
            if left == 0 and count is None:
                say(f"penstock: {WINDOW:,} messages are printed, and no more come with --no-ack")
        finally:
            _leave(client, consumer)


def _leave(client: HttpClient, consumer: str) -> None:
    """Release unacknowledged messages to other consumers, at once rather than when the consumer expires."""
    try:
        client.call("DELETE", consumer)
    except PenstockError:
        pass  # it is gone already, or the server is
