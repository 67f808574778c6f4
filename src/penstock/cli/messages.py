"""`penstock produce`, `read`, `consume` and `request`: messages in and out of a topic."""

import json
import signal
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import subscription_path, topic_path
from penstock.model.names import TopicName

from . import output
from .connection import connected, topic_argument
from .schema_files import schema_of

BATCH: Final = 500  # messages a request; when producing, each is durable before the next is sent
FOLLOW_MS: Final = 20_000  # of one long poll, well within the client's timeout
ROUND_MS: Final = 500  # of one among several partitions: how long messages of the others may take
FIRST_MS: Final = 1000  # of a consumer that does not follow: what is there already comes within this
TERMINATED: Final = 143  # what shells say of a command that SIGTERM ended


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
def produce_command(
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
def read_command(
    client: HttpClient, topic: TopicName, start: str, partition: int | None, count: int | None, follow: bool
) -> None:
    """Read TOPIC; leaves no trace on the server."""
    number = client.partitions(topic)
    chosen = range(max(1, number)) if partition is None else [partition]
    places = {one: _place(client, topic, one, start) for one in chosen}
    left = count
    while True:
        found_any = False
        for one in places:
            while left is None or left > 0:
                wait = (FOLLOW_MS if len(places) == 1 else ROUND_MS) if follow and not found_any else None
                wanted = BATCH if left is None else min(BATCH, left)
                answer = client.read(topic, one, **places[one], max_messages=wanted, timeout=wait)
                found: list[dict[str, Any]] = answer["messages"]
                _print(found)
                if not found:
                    break
                found_any = True
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


@click.command("consume")
@topic_argument
@click.option("--subscription", "-s", required=True, help="Created when it is not there.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["Exclusive", "Shared", "Failover", "Key_Shared"], case_sensitive=False),
    default="Exclusive",
    show_default=True,
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Where a new subscription begins.",
)
@click.option("--ack/--no-ack", default=True, help="Acknowledge what was printed. [ack]")
@click.option("--follow", is_flag=True, help="Wait for what is published later.")
@click.option("--count", type=click.IntRange(1), help="So many messages at most.")
@click.option("--name", help="The consumer's name.")
@click.option("--create", is_flag=True, help="Create TOPIC when it does not exist; else that is an error.")
@connected
def consume_command(
    client: HttpClient,
    topic: TopicName,
    subscription: str,
    kind: str,
    start: str,
    ack: bool,
    follow: bool,
    count: int | None,
    name: str | None,
    create: bool,
) -> None:
    """Consume TOPIC under a subscription; what was printed is acknowledged."""
    signal.signal(signal.SIGTERM, _end)
    if not create:
        client.partitions(topic)  # raises where there is no such topic: subscribing would create it
    path = subscription_path(topic, subscription)
    asked = {"subscription_type": kind, "initial_position": start, "receiver_queue_size": BATCH}
    created = client.call("POST", path, body={**asked, **({} if name is None else {"name": name})})
    consumer = f"{path}/consumer/{created['id']}"
    left, wait = count, FOLLOW_MS if follow else FIRST_MS
    try:
        while left is None or left > 0:
            wanted = {"max_messages": BATCH if left is None else min(BATCH, left), "timeout": wait}
            found: list[dict[str, Any]] = client.call("GET", f"{consumer}/messages", params=wanted)[
                "messages"
            ]
            _print(found)
            if ack and found:
                ids = [message["messageId"] for message in found]
                client.call("POST", f"{path}/cursor", body={"type": "individual", "messageIds": ids})
            if not found and not follow:
                break
            if not ack and not follow and len(found) == BATCH:
                break  # the consumer's queue is full of what was not acknowledged
            left = None if left is None else left - len(found)
    finally:
        _leave(client, consumer)


def _end(*_: object) -> None:
    """Ended by another program (`timeout`, a supervisor): leave as after Ctrl-C, lest the consumer stay."""
    raise click.exceptions.Exit(TERMINATED)


def _leave(client: HttpClient, consumer: str) -> None:
    """Let the others have what was not acknowledged, at once rather than when the consumer expires."""
    try:
        client.call("DELETE", consumer)
    except RemoteError:
        pass  # it is gone already


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
    answer = client.call(
        "POST", f"{topic_path(topic)}/request", params={"timeout": timeout}, body={"messages": [message]}
    )
    if output.for_people():
        content = b64decode(answer["replyContent"] or "")
        click.echo(content.decode("utf-8", "backslashreplace"))
    else:
        output.line(answer)
    return 1 if answer["isErrorResult"] else 0


def _print(found: Iterable[Mapping[str, Any]]) -> None:
    """Messages as they come: a line each, in one of two forms."""
    people = output.for_people()
    for message in found:
        if not people:
            output.line(dict(message))
            continue
        place = f"{message.get('partition', 0)}:{message.get('offset', '')}"
        key = message.get("key")
        click.echo(
            click.style(f"{place:>10}  ", dim=True)
            + (click.style(f"{output.text(key)}  ", fg="cyan") if key is not None else "")
            + output.text(message.get("value"))
        )
