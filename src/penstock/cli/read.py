"""`penstock read TOPIC`."""

from datetime import datetime
from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument

BATCH: Final = 500
FOLLOW_MS: Final = 20_000  # of one long poll, well within the client's timeout
ROUND_MS: Final = 500  # of one among several partitions: how long news of the others may take


@click.command("read")
@topic_argument
@click.option(
    "--from",
    "start",
    default="earliest",
    metavar="WHERE",
    help="earliest (the default), latest, an offset, a message id (after it), or a time like 2013-01-01T05:00.",
)
@click.option("--partition", type=click.IntRange(0), help="One of them; all by default, one after the other.")
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--follow", is_flag=True, help="Go on with what is published later.")
@connected
def command(
    client: HttpClient, topic: TopicName, start: str, partition: int | None, count: int | None, follow: bool
) -> None:
    """Read TOPIC; leaves no trace on the server."""
    number = client.partitions(topic)
    chosen = range(max(1, number)) if partition is None else [partition]
    places = {one: _place(client, topic, one, start) for one in chosen}
    left = count
    while True:
        news = False
        for one in places:
            while left is None or left > 0:
                wait = (FOLLOW_MS if len(places) == 1 else ROUND_MS) if follow and not news else None
                wanted = BATCH if left is None else min(BATCH, left)
                answer = client.read(topic, one, **places[one], max_messages=wanted, timeout=wait)
                found: list[dict[str, Any]] = answer["messages"]
                output.messages(found)
                if not found:
                    break
                news = True
                left = None if left is None else left - len(found)
                places[one] = {"offset": found[-1]["offset"] + 1}
        if left == 0 or not follow:
            return


def _place(client: HttpClient, topic: TopicName, partition: int, start: str) -> dict[str, Any]:
    """Where to begin, as the request's parameters."""
    if start == "earliest":
        return {"offset": client.offsets(topic, partition).earliest}
    if start == "latest":
        return {"offset": client.offsets(topic, partition).latest}
    if start.isascii() and start.isdigit():
        return {"offset": int(start)}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        return {"message_id": start}
    return {"publish_time": int(moment.timestamp() * 1000)}
