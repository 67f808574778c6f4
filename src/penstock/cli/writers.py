"""`penstock writers …`: the writers of staged batches, and their last commits."""

from collections.abc import Iterator
from typing import Any

import click

from penstock.client.http import HttpClient
from penstock.client.paths import quoted
from penstock.model.names import DEFAULT_NAMESPACE, TopicName

from . import output
from .connection import TopicType, connected
from .groups import Group

_COLUMNS = ("writer", "owner", "topics", "batch", "messages", "commit_timestamp", "staged_bytes")


@click.group("writers", cls=Group)
def writers_command() -> None:
    """List and forget the writers of staged batches."""


@writers_command.command("list")
@connected
def list_writers(client: HttpClient) -> None:
    """List the writers with their last commits, one to each set of topics; all of them for a superuser."""
    output.rows(_COLUMNS, _rows(client), "there are no writers")


def _rows(client: HttpClient) -> Iterator[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        found = client.call("GET", "/stages", params={"after": after or None})
        for writer in found["writers"]:
            staged = {name: writer[name] for name in ("staged_batches", "staged_bytes")}
            for target in writer["targets"] or [{}]:
                yield {
                    "writer": writer["writer"],
                    "owner": writer["owner"] or None,
                    "topics": _told(target.get("topics")),
                    "batch": target.get("batch"),
                    "messages": target.get("messages"),
                    "commit_timestamp": target.get("at"),
                    **staged,
                }
        after = found["next"]


def _told(topics: list[str] | None) -> list[str] | None:
    """Topics of the usual namespace by their own name, for people."""
    if topics is None or not output.for_people():
        return topics
    names = [TopicName.parse(topic) for topic in topics]
    return [name.local if name.namespace_name == DEFAULT_NAMESPACE else str(name) for name in names]


@writers_command.command()
@click.argument("writer")
@click.option(
    "--topic", "topics", type=TopicType(), multiple=True, help="Only the last commit to these topics."
)
@click.option("--no-topics", is_flag=True, help="Only the last commit that declared no topics.")
@click.option("--force", is_flag=True, help="Also drop what the writer has staged.")
@connected
def forget(
    client: HttpClient, writer: str, topics: tuple[TopicName, ...], no_topics: bool, force: bool
) -> None:
    """Forget WRITER: a batch that it commits again is new, and stored again."""
    if no_topics and topics:
        raise click.UsageError("--topic and --no-topics exclude one another")
    names = [str(topic) for topic in topics] or ([""] if no_topics else None)
    found = client.call(
        "DELETE",
        f"/stages/{quoted(writer)}",
        params={"topics": names, "force": "true" if force else None},
    )
    output.done(f"forgot {writer}" + (f" for {', '.join(map(str, topics))}" if topics else ""), **found)
