"""The demonstration before an Apache Pulsar cluster, in a namespace of its own."""

import shutil
import tempfile
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from rich.console import Console

import penstock
from penstock.client.http import HttpClient
from penstock.client.paths import topic_path
from penstock.model.names import TopicName
from penstock.testing.server import Launched

from .delays import spark
from .flights import airlines
from .show import serving
from .steps import check_extras, rest, say, table, websocket

PIPELINE: Final = Path(__file__).with_name("delays_table.toml")
REPLY_TO: Final = "penstock-reply-to"
CORRELATION_ID: Final = "penstock-correlation-id"
WAIT_MS: Final = 30_000


def show(engine: str, admin: str, *, port: int, once: bool) -> None:
    """Run all of it through the cluster; without `once` the server goes on until Ctrl-C. The namespace is deleted at
    the end."""
    check_extras()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    flags = ("--engine", engine, "--admin", admin)
    try:
        with _namespace(admin) as namespace, serving(folder, port, *flags) as server:
            flights = TopicName.parse(f"{namespace}/flights")
            say(console, f"[bold]1  Penstock runs[/] at {server.url}, before the Pulsar cluster {engine}")
            rest(console, server, flights)
            websocket(console, server, TopicName.parse(f"{namespace}/departures"))
            _reply(console, server, engine, TopicName.parse(f"{namespace}/carriers"))
            _spark(console, server, folder, flights)
            if not once:
                _stay(console, server, namespace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if once:
        say(console, "\nStopped, and what it made in the cluster is deleted.")


@contextmanager
def _namespace(admin: str) -> Iterator[str]:
    """A namespace that keeps its messages, also without subscriptions, until it is deleted at the end: when the server,
    which listens there for replies, has ended."""
    name = f"public/penstock-demo-{uuid4().hex[:8]}"
    path = f"/admin/v2/namespaces/{name}"
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    stay = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 86_400,
        "deleteWhileInactive": False,
    }
    with HttpClient(admin) as client:
        client.call("PUT", path)
        try:
            client.call("POST", f"{path}/retention", body=keep)
            client.call("POST", f"{path}/inactiveTopicPolicies", body=stay)
            yield name
        finally:
            _delete(client, path, name)


def _delete(client: HttpClient, path: str, name: str) -> None:
    """Not with its topics at once: clusters may forbid that."""
    force = {"force": "true"}
    partitioned = client.call("GET", f"/admin/v2/persistent/{name}/partitioned")
    for topic in map(TopicName.parse, partitioned):
        client.call("DELETE", f"/admin/v2/persistent/{name}/{topic.local}/partitions", params=force)
    for topic in map(
        TopicName.parse, client.call("GET", f"{path}/topics", params={"includeSystemTopics": "true"})
    ):
        client.call("DELETE", f"/admin/v2/{topic.domain}/{name}/{topic.local}", params=force)
    client.call("DELETE", path)


def _reply(console: Console, server: Launched, engine: str, topic: TopicName) -> None:
    say(
        console,
        f"[bold]4  Request and reply:[/] a client of the brokers answers requests that come over HTTP, on {topic}",
    )
    with penstock.Client(engine) as client, HttpClient(server.url) as http:
        consumer = client.subscribe(str(topic), "demo")
        replier = threading.Thread(target=_serve, args=(client, consumer), daemon=True)
        replier.start()
        for carrier in ("UA", "B6"):
            started = time.perf_counter()
            answer = http.call(
                "POST",
                f"{topic_path(topic)}/request",
                params={"timeout": WAIT_MS},
                body={"value": carrier},
            )
            reply = b64decode(answer["replyContent"]).decode()
            say(console, f"   {carrier}: {reply}, after {(time.perf_counter() - started) * 1000:.0f} ms")
        replier.join(WAIT_MS / 1000)


def _serve(client: "penstock.Client", consumer: "penstock.Consumer") -> None:
    """Reply to two requests with the carrier's name, as a consumer of any Pulsar client can."""
    names = airlines()
    for _ in range(2):
        request = consumer.receive(WAIT_MS)
        properties = request.properties()
        producer = client.create_producer(properties[REPLY_TO])
        reply = names.get(request.data().decode(), "unknown").encode()
        producer.send(reply, properties={CORRELATION_ID: properties[CORRELATION_ID]})
        producer.close()
        consumer.acknowledge(request)


def _spark(console: Console, server: Launched, folder: Path, topic: TopicName) -> None:
    say(
        console,
        "[bold]5  Spark:[/] a declared pipeline: delays per carrier and hour, with a watermark, to a Delta table",
    )
    declared = PIPELINE.read_text(encoding="utf-8").replace("TOPIC", str(topic))
    late, broken, rows = spark(console, server, topic, folder, declared)
    say(
        console,
        f"   then {late} late flights and {broken} broken messages, published on purpose: all {late + broken} are"
        " counted and left out",
    )
    console.print(table(rows))
    say(console, "   a query over the Delta table, which has every flight once")


def _stay(console: Console, server: Launched, namespace: str) -> None:
    say(console, f"\n[bold]Penstock goes on running[/] at {server.url} until Ctrl-C. Try:\n")
    topics = f"{server.url}/topics/{namespace}"
    hello = msgspec.json.encode({"messages": [{"value": "hello, world"}]}).decode()
    for command in (
        f"curl '{topics}/flights/partitions/0/messages?max_messages=3'",
        f"curl -X POST '{topics}/hello' -H 'Content-Type: application/json' -d '{hello}'",
        f"curl '{server.url}/admin/v2/persistent/{namespace}/flights/partitioned-stats'",
        f"penstock topics list --url {server.url} {namespace}",
    ):
        say(console, f"  {command}", markup=False)
    say(console, f"\nThe HTTP interface as a page: {server.url}/docs")
    try:
        server.process.wait()
    except KeyboardInterrupt:
        say(console, "\nStopping; what it made in the cluster is deleted.")
