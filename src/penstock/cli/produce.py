"""`penstock produce TOPIC [VALUE …]`."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from penstock.client.http import HttpClient
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument
from .schema_files import schema_of

BATCH: Final = 500  # lines a request; each is durable before the next is sent


@click.command("produce")
@topic_argument
@click.argument("values", nargs=-1)
@click.option("--key", help="The key of every message.")
@click.option("--property", "properties", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--schema-type", help="string (the default), json, avro, int32, bytes (base64), …")
@click.option(
    "--schema-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="An .avsc, .json or .proto file; values are then JSON.",
)
@click.option("--file", type=click.File("r", encoding="utf-8"), help="One message a line; - is stdin.")
@click.option("--deliver-after", metavar="MS", type=click.IntRange(0), help="Deliver so much later.")
@connected
def command(
    client: HttpClient,
    topic: TopicName,
    values: tuple[str, ...],
    key: str | None,
    properties: tuple[str, ...],
    schema_type: str | None,
    schema_file: Path | None,
    file: Iterable[str] | None,
    deliver_after: int | None,
) -> int:
    """Publish each VALUE to TOPIC; without any, or for `-`, each line of stdin."""
    request = _request(topic, schema_type, schema_file)
    as_text = not request or str(request.get("schema_type", "")).lower() in ("string", "bytes", "none")
    shared: dict[str, Any] = {"key": key, "deliverAfterMs": deliver_after, "properties": _pairs(properties)}
    shared = {name: value for name, value in shared.items() if value}
    failed = published = 0
    for batch in _batches(_values(values, file)):
        messages = [{"value": value if as_text else _json(value), **shared} for value in batch]
        for result in client.produce(topic, messages, **request)["messageIds"]:
            if result.get("error_code"):
                failed += 1
                click.echo(f"penstock: {result['error']}", err=True)
            else:
                published += 1
                if not output.for_people():
                    output.line({"messageId": result["messageId"], "partition": result["partition"]})
    if output.for_people():
        click.echo(f"published {published:,} message{'' if published == 1 else 's'} to {topic}")
    return 1 if failed else 0


def _request(topic: TopicName, schema_type: str | None, schema_file: Path | None) -> dict[str, Any]:
    if not topic.persistent:
        raise click.ClickException("messages for non-persistent topics go over WebSocket")
    if schema_file is None:
        return {} if schema_type is None else {"schema_type": schema_type}
    schema = schema_of(schema_file, schema_type)
    if (
        schema["type"] == "PROTOBUF_NATIVE"
    ):  # its definition is an object of its own: the request takes base64
        from base64 import b64encode

        schema["schema"] = b64encode(schema["schema"].encode()).decode()
    return {"schema_type": schema["type"], "value_schema": schema}


def _pairs(properties: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for pair in properties:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.UsageError(f"--property {pair}: NAME=VALUE is expected")
        pairs[name] = value
    return pairs


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise click.ClickException(f"a value is no JSON: {error}: {value[:80]}") from None


def _values(values: tuple[str, ...], file: Iterable[str] | None) -> Iterator[str]:
    if file is not None:
        values = (*values, "-")
    elif not values:
        values = ("-",)
    for value in values:
        if value == "-":
            for read in file or sys.stdin:
                yield read.rstrip("\r\n")
        else:
            yield value


def _batches(values: Iterator[str]) -> Iterator[list[str]]:
    if sys.stdin.isatty():
        for value in values:  # a person types: every line goes out at once
            yield [value]
        return
    while batch := list(islice(values, BATCH)):
        yield batch
