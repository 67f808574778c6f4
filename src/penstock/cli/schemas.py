"""`penstock schemas …`."""

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any, NamedTuple

import click

from penstock.client.http import HttpClient
from penstock.client.paths import schemas_path
from penstock.model.names import TopicName

from . import output
from .actions import sure, yes_option
from .connection import connected, topic_argument
from .groups import Group
from .schema_files import schema_of


class Side(NamedTuple):
    """One of the two: what it is called, its type and its definition as text."""

    name: str
    type: str
    definition: str

    @property
    def tree(self) -> Any:
        """The definition as JSON, if it is that; else its text."""
        try:
            return json.loads(self.definition) if self.definition else {}
        except ValueError:
            return self.definition

    def lines(self) -> list[str]:
        tree = self.tree
        text = tree if isinstance(tree, str) else json.dumps(tree, indent=2, ensure_ascii=False)
        return [f"type: {self.type}", *text.splitlines()]


def show_difference(old: Side, new: Side) -> int:
    """Show it; returns the exit code, 1 when there is one."""
    if output.for_people():
        found = list(unified_diff(old.lines(), new.lines(), old.name, new.name, lineterm=""))
        for line in found:
            color = {"+": "green", "-": "red"}.get(line[:1])
            click.echo(click.style(line, fg=color) if color else line)
        if not found:
            output.say(f"{old.name} and {new.name} are the same")
        return 1 if found else 0
    changes = list(changed(old, new))
    for change in changes:
        output.line(change)
    return 1 if changes else 0


def changed(old: Side, new: Side) -> Iterator[dict[str, Any]]:
    """The differences, each with its place: the fields of records go by their names."""
    if old.type != new.type:
        yield {"change": "changed", "at": "type", "old": old.type, "new": new.type}
    yield from _differences(old.tree, new.tree, "")


def _differences(old: Any, new: Any, at: str) -> Iterator[dict[str, Any]]:
    before, after = _children(old), _children(new)
    if before is None or after is None:
        if old != new:
            yield {"change": "changed", "at": at, "old": old, "new": new}
        return
    for name in [*before, *(name for name in after if name not in before)]:
        place = f"{at}.{name}" if at else name
        if name not in after:
            yield {"change": "removed", "at": place, "old": before[name]}
        elif name not in before:
            yield {"change": "added", "at": place, "new": after[name]}
        else:
            yield from _differences(before[name], after[name], place)


def _children(tree: Any) -> dict[str, Any] | None:
    """What a tree consists of: members of an object, a list's named parts by name; None for anything else."""
    if isinstance(tree, dict):
        return tree
    named = isinstance(tree, list) and all(isinstance(one, dict) and "name" in one for one in tree)
    return {str(one["name"]): one for one in tree} if named else None


_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_type = click.option("--type", "kind", help="The schema's type, where the file's name does not say.")
_deleted = click.option("--deleted", is_flag=True, help="Also versions from before a deletion.")
_message = click.option("--message", help="Which message of a .proto file.")


@click.group("schemas", cls=Group)
def schemas_command() -> None:
    """List, show, compare, check and register schemas."""


@schemas_command.command("list")
@topic_argument
@_deleted
@connected
def list_schemas(client: HttpClient, topic: TopicName, deleted: bool) -> None:
    """List the versions of TOPIC's schema."""
    found = client.call("GET", f"{schemas_path(topic)}/schemas", params=_query(deleted=deleted))
    rows = [{**one, "definition": one["data"]} for one in found["getSchemaResponses"]]
    for row in rows:
        del row["data"]
    output.rows(("version", "type", "timestamp", "definition"), rows, f"{topic} has no schema")


@schemas_command.command()
@topic_argument
@click.option("--version", type=click.IntRange(0), help="Which one; the newest by default.")
@_deleted
@connected
def show(client: HttpClient, topic: TopicName, version: int | None, deleted: bool) -> None:
    """Show TOPIC's schema."""
    output.record(_found(client, topic, version, deleted))


@schemas_command.command()
@topic_argument
@connected
def metadata(client: HttpClient, topic: TopicName) -> None:
    """List the versions of TOPIC's schema without their definitions."""
    found = client.call("GET", f"{schemas_path(topic)}/metadata")
    versions = found["index"] if found else []  # Pulsar's brokers answer nothing without one
    output.rows(("version", "type", "timestamp"), versions, f"{topic} has no schema")


@schemas_command.command()
@topic_argument
@click.argument("old", metavar="[VERSION|FILE]", required=False)
@click.argument("new", metavar="[VERSION|FILE]", required=False)
@_type
@_message
@connected
def diff(
    client: HttpClient,
    topic: TopicName,
    old: str | None,
    new: str | None,
    kind: str | None,
    message: str | None,
) -> int:
    """Compare two versions of TOPIC's schema, or one with a file; exit code 1 when they differ.

    Without any, the newest with the one before it; with one, that with the newest. A file is the newer of the two.
    """
    if old is not None and new is None:
        old, new = (None, old) if not old.isdecimal() else (old, None)
    newest = int(_found(client, topic)["version"])
    if old is None:
        old = str(max(0, newest - 1) if new is None else newest)
    sides = [_side(client, topic, one or str(newest), kind, message) for one in (old, new)]
    return show_difference(*sides)


def _side(client: HttpClient, topic: TopicName, which: str, kind: str | None, message: str | None) -> Side:
    """A version by its number, or a file."""
    if which.isdecimal():
        found = _found(client, topic, int(which), deleted=True)
        return Side(f"{topic.local} version {which}", found["type"], found["data"])
    given = schema_of(Path(which), kind, message)
    return Side(which, given["type"], given["schema"])


@schemas_command.command()
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


@schemas_command.command("version")
@topic_argument
@_file
@_type
@_message
@connected
def version_of(
    client: HttpClient, topic: TopicName, file: Path, kind: str | None, message: str | None
) -> int:
    """Say which version of TOPIC's schema is the one in FILE; exit code 1 when none is."""
    found = client.call("POST", f"{schemas_path(topic)}/version", body=_payload(file, kind, message))
    output.record(found)
    return 0 if found["version"] >= 0 else 1


@schemas_command.command()
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


@schemas_command.command()
@topic_argument
@click.option(
    "--force", "-f", is_flag=True, help="Forget every version; else a new one says that there is none."
)
@yes_option
@connected
def delete(client: HttpClient, topic: TopicName, force: bool, yes: bool) -> None:
    """Delete TOPIC's schema."""
    sure(yes, f"delete the schema of {topic}" + (" and forget its versions" if force else ""))
    client.call("DELETE", f"{schemas_path(topic)}/schema", params=_query(force=force))
    output.done(f"deleted the schema of {topic}", topic=str(topic), deleted=True)


def _found(
    client: HttpClient, topic: TopicName, version: int | None = None, deleted: bool = False
) -> dict[str, Any]:
    """A version of a topic's schema, the newest by default."""
    path = f"{schemas_path(topic)}/schema"
    if version is None:
        found: dict[str, Any] = client.call("GET", path)
    else:
        found = client.call("GET", f"{path}/{version}", params=_query(deleted=deleted))
    return found


def _query(**flags: bool) -> dict[str, str]:
    return {name: "true" for name, value in flags.items() if value}


def _payload(file: Path, kind: str | None, message: str | None) -> dict[str, Any]:
    return {**schema_of(file, kind, message), "properties": {}}
