"""`penstock produce`."""

import sys
from base64 import b64encode
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from penstock.cli import output
from penstock.cli.connection import connected, topic_argument
from penstock.cli.options import files as offer_files
from penstock.cli.progress import Progress, watched
from penstock.cli.properties import pairs_option
from penstock.cli.schema_files import schema_of
from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import schemas_path
from penstock.model.names import TopicName

from .formats import ENCODINGS, FORMATS, Format, Message, Reading, ValueEncoding
from .pieces import pieces
from .publishing import Publishing

_TEXTS: Final = ("STRING", "BYTES", "NONE")  # types of schemas whose values are texts


@click.command("produce")
@topic_argument
@click.argument("values", nargs=-1)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="What stdin, files and values hold: values, keys and values, JSON as `read` prints it; `whole`: a file is one message.",
)
@click.option("--key-separator", metavar="TEXT", default="\t", help="Of key-value. [a tab]")
@click.option(
    "--encoding",
    type=click.Choice(ENCODINGS),
    default="text",
    show_default=True,
    help="How values are given: as text, in base64, or as the payload's bytes.",
)
@click.option("--key", help="The key of every message that has none of its own.")
@pairs_option("--property", "properties", help="May be repeated.")
@click.option("--schema-type", help="string, json, avro, int32, bytes (base64), …; by default the topic's.")
@click.option(
    "--schema-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="An .avsc, .json or .proto file; values are then JSON.",
)
@click.option(
    "--file",
    "files",
    metavar="FILE",
    multiple=True,
    shell_complete=offer_files,
    help="Input; - is stdin. May be repeated.",
)
@click.option("--deliver-after", metavar="MS", type=click.IntRange(0), help="Deliver so much later.")
@connected
def produce_command(
    client: HttpClient,
    topic: TopicName,
    values: tuple[str, ...],
    format: Format,
    key_separator: str,
    encoding: ValueEncoding,
    key: str | None,
    properties: dict[str, str],
    schema_type: str | None,
    schema_file: Path | None,
    files: tuple[str, ...],
    deliver_after: int | None,
) -> int:
    """Publish each VALUE to TOPIC; without any, or for `-`, each line of stdin.

    Invalid input is reported on stderr, and the rest is published; the exit code is then 1.
    """
    if not topic.persistent:
        raise click.ClickException("messages for non-persistent topics go over WebSocket")
    if format == "json" and encoding == "binary":
        raise click.UsageError("--encoding binary is not for --format json: JSON holds bytes in base64")
    if not key_separator:
        raise click.UsageError("--key-separator is empty")
    target = _target(client, topic, schema_type, schema_file)
    shared: Message = {"key": key, "deliverAfterMs": deliver_after, "properties": properties}
    request = target.request
    if encoding != "text":
        request = {**(request or {"schema_type": "bytes"}), "encoding": "base64"}
    reading = Reading(
        format,
        encoding,
        structured=target.structured,
        keys_structured=target.pairs,
        separator=key_separator,
        shared={name: value for name, value in shared.items() if value},
    )
    with Progress("published", shown=_followed(values, files)) as progress:
        publishing = Publishing(client, topic, reading, request, progress)
        try:
            publishing.run(pieces(values, files, whole=format == "whole", bare=encoding == "binary"))
        except KeyboardInterrupt:
            _tell(publishing.published, topic)
            raise
    _tell(publishing.published, topic)
    return 1 if publishing.failed else 0


def _tell(count: int, topic: TopicName) -> None:
    if output.for_people():
        output.say(f"published {count:,} message{'' if count == 1 else 's'} to {topic}")


class Target(NamedTuple):
    """What the topic takes: the schema fields of a request, whether values are JSON, and whether keys are, too."""

    request: dict[str, Any]
    structured: bool = False
    pairs: bool = False


def _target(
    client: HttpClient, topic: TopicName, schema_type: str | None, schema_file: Path | None
) -> Target:
    if schema_file is not None:
        schema = schema_of(schema_file, schema_type)
        if schema["type"] == "PROTOBUF_NATIVE":  # its definition is a separate object: requests take base64
            schema["schema"] = b64encode(schema["schema"].encode()).decode()
        return Target({"schema_type": schema["type"], "value_schema": schema}, structured=True)
    if schema_type is not None:
        return Target({"schema_type": schema_type}, structured=schema_type.upper() not in _TEXTS)
    return _target_of_topic(client, topic)


def _target_of_topic(client: HttpClient, topic: TopicName) -> Target:
    """The format of the topic's newest schema; texts if there is none, or if it may not be read."""
    try:
        schema = client.call("GET", f"{schemas_path(topic)}/schema")
    except RemoteError as error:
        if error.status in (403, 404):
            return Target({})
        raise
    kind = str(schema["type"]).upper()
    if kind in _TEXTS:
        return Target({})
    return Target({"schema_version": schema["version"]}, structured=True, pairs=kind == "KEY_VALUE")


def _followed(values: tuple[str, ...], files: tuple[str, ...]) -> bool:
    """Whether a person watches and does not type the messages."""
    typed = sys.stdin.isatty() and ("-" in (*values, *files) or not (values or files))
    return not typed and watched(silent_output=True)
