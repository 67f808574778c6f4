"""`penstock schemas …`."""

from pathlib import Path
from typing import Any

import click

from penstock.client.http import HttpClient
from penstock.client.paths import schemas_path
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument
from .schema_files import schema_of

_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_type = click.option("--type", "kind", help="The schema's type, where the file's name does not say.")
_message = click.option("--message", help="Which message of a .proto file.")


@click.group("schemas")
def command() -> None:
    """List, show, check and register schemas."""


@command.command("list")
@topic_argument
@connected
def list_schemas(client: HttpClient, topic: TopicName) -> None:
    """List the versions of TOPIC's schema."""
    found = client.call("GET", f"{schemas_path(topic)}/schemas")["getSchemaResponses"]
    rows = [{**one, "definition": one["data"]} for one in found]
    for row in rows:
        del row["data"]
    output.rows(("version", "type", "timestamp", "definition"), rows, f"{topic} has no schema")


@command.command()
@topic_argument
@click.option("--version", type=click.IntRange(0), help="Which one; the newest by default.")
@connected
def show(client: HttpClient, topic: TopicName, version: int | None) -> None:
    """Show TOPIC's schema."""
    path = f"{schemas_path(topic)}/schema"
    output.record(client.call("GET", path if version is None else f"{path}/{version}"))


@command.command()
@topic_argument
@_file
@_type
@_message
@connected
def check(client: HttpClient, topic: TopicName, file: Path, kind: str | None, message: str | None) -> int:
    """Say whether the schema in FILE may follow those of TOPIC; exit code 1 when it may not."""
    found: dict[str, Any] = client.call(
        "POST", f"{schemas_path(topic)}/compatibility", body=_payload(file, kind, message)
    )
    output.record(found)
    return 0 if found["isCompatibility"] else 1


@command.command()
@topic_argument
@_file
@_type
@_message
@connected
def register(client: HttpClient, topic: TopicName, file: Path, kind: str | None, message: str | None) -> None:
    """Register the schema in FILE for TOPIC."""
    answer = client.call("POST", f"{schemas_path(topic)}/schema", body=_payload(file, kind, message))
    version = answer["version"]["version"]
    output.done(f"version {version} of the schema of {topic}", topic=str(topic), version=version)


def _payload(file: Path, kind: str | None, message: str | None) -> dict[str, Any]:
    return {**schema_of(file, kind, message), "properties": {}}
