"""`penstock schemas …`, and schemas from files: `.avsc` is Avro, `.json` is JSON by its Avro definition, `.proto` is
Protobuf."""

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.client.paths import schemas_path
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument
from .groups import Group

_TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF_NATIVE"}

_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_type = click.option("--type", "kind", help="The schema's type, where the file's name does not say.")
_message = click.option("--message", help="Which message of a .proto file.")


@click.group("schemas", cls=Group)
def schemas_command() -> None:
    """List, show, check and register schemas."""


@schemas_command.command("list")
@topic_argument
@connected
def list_schemas(client: HttpClient, topic: TopicName) -> None:
    """List the versions of TOPIC's schema."""
    found = client.call("GET", f"{schemas_path(topic)}/schemas")["getSchemaResponses"]
    rows = [{**one, "definition": one["data"]} for one in found]
    for row in rows:
        del row["data"]
    output.rows(("version", "type", "timestamp", "definition"), rows, f"{topic} has no schema")


@schemas_command.command()
@topic_argument
@click.option("--version", type=click.IntRange(0), help="Which one; the newest by default.")
@connected
def show(client: HttpClient, topic: TopicName, version: int | None) -> None:
    """Show TOPIC's schema."""
    path = f"{schemas_path(topic)}/schema"
    output.record(client.call("GET", path if version is None else f"{path}/{version}"))


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


def _payload(file: Path, kind: str | None, message: str | None) -> dict[str, Any]:
    return {**schema_of(file, kind, message), "properties": {}}


def schema_of(file: Path, kind: str | None = None, message: str | None = None) -> dict[str, str]:
    """`type` and `schema` as the registry takes them; raises ClickException with one sentence."""
    found = kind.upper() if kind else _TYPES.get(file.suffix.lower())
    if found is None:
        raise click.ClickException(f"{file}: name its type with --type, or call it .avsc, .json or .proto")
    if file.suffix.lower() == ".proto":
        return {"type": "PROTOBUF_NATIVE", "schema": _compiled(file, message)}
    try:
        return {"type": found, "schema": file.read_text("utf-8")}
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise click.ClickException(f"{file} is no text") from None


def _compiled(file: Path, message: str | None) -> str:
    """The definition of a message in a `.proto` file: the one named, or the only one."""
    try:
        protoc = import_module("grpc_tools.protoc")
    except ImportError:
        raise click.ClickException(
            "a .proto file needs the compiler of protobuf: pip install 'penstock[proto]'"
        ) from None
    from penstock.codec.descriptors import messages_in, native_schema

    if not file.is_file():
        raise click.ClickException(f"{file} cannot be read: no such file")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        include = Path(str(protoc.__file__)).parent / "_proto"
        arguments = [
            "protoc",
            f"--proto_path={file.parent}",
            f"--proto_path={include}",
            "--include_imports",
            f"--descriptor_set_out={target}",
            str(file),
        ]
        if protoc.main(arguments) != 0:
            raise click.ClickException(f"{file} is no good protobuf")
        descriptors = target.read_bytes()
    names = messages_in(descriptors)
    wanted = message or (names[0] if len(names) == 1 else None)
    if wanted is None:
        raise click.ClickException(f"{file}: name one of its messages with --message: {', '.join(names)}")
    return native_schema(descriptors, wanted).data.decode()
