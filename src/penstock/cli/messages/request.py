"""`penstock request`."""

from base64 import b64decode
from typing import Any

import click

from penstock.cli import output
from penstock.cli.connection import connected, topic_argument
from penstock.client.http import HttpClient
from penstock.client.paths import topic_path
from penstock.model.names import TopicName


@click.command("request")
@topic_argument
@click.argument("value")
@click.option("--timeout", metavar="MS", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--key", help="The message's key.")
@connected
def request_command(client: HttpClient, topic: TopicName, value: str, timeout: int, key: str | None) -> int:
    """Send VALUE to TOPIC and print the consumer's reply; exit code 1 when the reply is an error."""
    message = {"value": value, **({} if key is None else {"key": key})}
    client.timeout_s = max(client.timeout_s, timeout / 1000 + 5)
    answer: dict[str, Any] = client.call(
        "POST", f"{topic_path(topic)}/request", params={"timeout": timeout}, body={"messages": [message]}
    )
    if output.for_people():
        content = b64decode(answer["replyContent"] or "")
        click.echo(content.decode("utf-8", "backslashreplace"))
    else:
        output.line(answer)
    return 1 if answer["isErrorResult"] else 0
