"""`penstock read`."""

from typing import Any, Final

import click

from penstock.cli.connection import connected, topic_argument
from penstock.cli.progress import Progress, watched
from penstock.cli.quantities import moment_ms
from penstock.client.http import HttpClient
from penstock.client.paths import partition_path
from penstock.model.names import TopicName

from .printing import decode, printer

PAGE: Final = 4000  # messages a request
FOLLOW_MS: Final = 20_000  # of one long poll, well within the client's timeout
ROUND_MS: Final = 500  # of one among several partitions: how long messages of the others may take

encoding_option = click.option(
    "--encoding",
    type=click.Choice(["json", "base64", "text"]),
    help="How values are shown: by their schemas (json, the default), or the payloads as they are.",
)


@click.command("read")
@topic_argument
@click.option(
    "--from",
    "start",
    default="earliest",
    metavar="WHERE",
    help="earliest (the default), latest, an offset, a message id (after it), or a time: 2013-01-01T05:00 (UTC), or 2h (ago).",
)
@click.option("--partition", type=click.IntRange(0), help="One of them; all by default, one after the other.")
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--follow", is_flag=True, help="Go on with what is published later.")
@encoding_option
@connected
def read_command(
    client: HttpClient,
    topic: TopicName,
    start: str,
    partition: int | None,
    count: int | None,
    follow: bool,
    encoding: str | None,
) -> None:
    """Read TOPIC; leaves no trace on the server.

    In a pipe a message is a line of JSON, which `produce --format json` publishes.
    """
    number = client.partitions(topic)
    chosen = range(max(1, number)) if partition is None else [partition]
    places = {one: _place(start) for one in chosen}
    show, left = printer(), count
    with Progress("read", count, shown=watched(silent_output=False)) as progress:
        while True:
            found_any = False
            for one in places:
                while left is None or left > 0:
                    wait = (FOLLOW_MS if len(places) == 1 else ROUND_MS) if follow and not found_any else None
                    wanted = PAGE if left is None else min(PAGE, left)
                    params = {**places[one], "max_messages": wanted, "timeout": wait, "encoding": encoding}
                    path = f"{partition_path(topic, one)}/messages"
                    answer = decode(client.fetch("GET", path, params=params)[0])
                    show(answer.messages)
                    progress.add(len(answer.messages))
                    places[one] = {"message_id": answer.next_message_id}
                    if not answer.messages:
                        break
                    found_any = True
                    left = None if left is None else left - len(answer.messages)
            if left == 0 or not follow:
                return


def _place(start: str) -> dict[str, Any]:
    """The start position, as the request's parameters."""
    if start.isascii() and start.isdigit():
        return {"offset": int(start)}
    moment = moment_ms(start)
    return {"message_id": start} if moment is None else {"publish_time": moment}
