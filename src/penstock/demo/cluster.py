"""The demonstration before an Apache Pulsar or Apache Kafka cluster, in its own namespace."""

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
from .sockets import reply
from .steps import check_extras, rest, say, table, websocket

PIPELINE: Final = Path(__file__).with_name("delays_table.toml")
REPLY_TO: Final = "penstock-reply-to"
CORRELATION_ID: Final = "penstock-correlation-id"
WAIT_MS: Final = 30_000
ASKED: Final = ("UA", "B6")  # carriers


def show(engine: str, admin: str | None, *, port: int, once: bool) -> None:
    """Run all of it through the cluster; without `once` the server goes on until Ctrl-C. The namespace is deleted at
    the end. `admin` is where a Pulsar cluster is administered; without one `engine` is Kafka's."""
    check_extras()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        served = (
            _before_kafka(engine, folder, port)
            if admin is None
            else _before_pulsar(engine, admin, folder, port)
        )
        with served as (server, namespace):
            flights = TopicName.parse(f"{namespace}/flights")
            say(console, f"[bold]1  Penstock runs[/] at {server.url}, before the cluster {engine}")
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


Served = tuple[Launched, str]  # a server, and the namespace


@contextmanager
def _before_pulsar(engine: str, admin: str, folder: Path, port: int) -> Iterator[Served]:
    """The namespace is deleted when the server, which listens there for replies, has ended."""
    name = _name()
    stay = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 86_400,
        "deleteWhileInactive": False,
    }
    with HttpClient(admin) as client:
        _create(client, name)
        try:
            client.call("POST", f"/admin/v2/namespaces/{name}/inactiveTopicPolicies", body=stay)
            with serving(folder, port, "--engine", engine, "--admin", admin) as server:
                yield server, name
        finally:
            _delete(client, name)


@contextmanager
def _before_kafka(engine: str, folder: Path, port: int) -> Iterator[Served]:
    """The server administers the cluster. At the end it has ended, also by a Ctrl-C: another one deletes the namespace."""
    name = _name()
    flags = ("--engine", engine, "--set", "engine.group_prefix=penstock-demo.")
    created = False
    try:
        with serving(folder, port, *flags) as server:
            with HttpClient(server.url) as client:
                _create(client, name)
            created = True
            yield server, name
    finally:
        if created:
            with serving(folder, 0, *flags) as server, HttpClient(server.url) as client:
                _delete(client, name)


def _name() -> str:
    return f"public/penstock-demo-{uuid4().hex[:8]}"


def _create(client: HttpClient, name: str) -> None:
    """A namespace that keeps its messages, also without subscriptions."""
    client.call("PUT", f"/admin/v2/namespaces/{name}")
    keep = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    client.call("POST", f"/admin/v2/namespaces/{name}/retention", body=keep)


def _delete(client: HttpClient, name: str) -> None:
    """Not with its topics at once: clusters may forbid that."""
    path = f"/admin/v2/namespaces/{name}"
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
    """Before Pulsar, a client of the brokers replies; Kafka's have no requests, and a WebSocket consumer does."""
    pulsar = engine.startswith("pulsar")
    who = "a client of the brokers" if pulsar else "a WebSocket consumer"
    say(
        console,
        f"[bold]4  Request and reply:[/] {who} answers requests that come over HTTP, on {topic}",
    )
    if not pulsar:
        names = airlines()
        replier = reply(server.ws, topic, len(ASKED), lambda carrier: names.get(carrier, "unknown"))
        _request(console, server, topic)
        replier.join(WAIT_MS / 1000)
        return
    with penstock.Client(engine) as client:
        consumer = client.subscribe(str(topic), "demo")
        replier = threading.Thread(target=_serve, args=(client, consumer), daemon=True)
        replier.start()
        _request(console, server, topic)
        replier.join(WAIT_MS / 1000)


def _request(console: Console, server: Launched, topic: TopicName) -> None:
    with HttpClient(server.url) as http:
        for carrier in ASKED:
            started = time.perf_counter()
            answer = http.call(
                "POST",
                f"{topic_path(topic)}/request",
                params={"timeout": WAIT_MS},
                body={"value": carrier},
            )
            content = b64decode(answer["replyContent"]).decode()
            say(console, f"   {carrier}: {content}, after {(time.perf_counter() - started) * 1000:.0f} ms")


def _serve(client: "penstock.Client", consumer: "penstock.Consumer") -> None:
    """Reply to the requests with the carrier's name, as a consumer of any Pulsar client can."""
    names = airlines()
    for _ in ASKED:
        request = consumer.receive(WAIT_MS)
        properties = request.properties()
        producer = client.create_producer(properties[REPLY_TO])
        content = names.get(request.data().decode(), "unknown").encode()
        producer.send(content, properties={CORRELATION_ID: properties[CORRELATION_ID]})
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
