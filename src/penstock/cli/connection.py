"""What every command that talks to a server shares: where it is, and how its answers are printed."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName

P = ParamSpec("P")


def connected(run: Callable[Concatenate[HttpClient, P], Any]) -> Callable[P, Any]:
    """Give a command the options `--url` and `--token`, and a client as its first argument."""

    @click.option(
        "--url",
        envvar="PENSTOCK_URL",
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The server. [env: PENSTOCK_URL]",
    )
    @click.option("--token", envvar="PENSTOCK_TOKEN", help="A token for it. [env: PENSTOCK_TOKEN]")
    @wraps(run)
    def command(*args: P.args, **options: P.kwargs) -> Any:
        url, token = options.pop("url"), options.pop("token")
        with HttpClient(Access(url=str(url), token=str(token or ""))) as client:
            return run(client, *args, **options)

    return command


class TopicType(click.ParamType[TopicName]):
    """A topic by its full or short name."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        return value if isinstance(value, TopicName) else TopicName.parse(str(value))


topic_argument = click.argument("topic", type=TopicType())
