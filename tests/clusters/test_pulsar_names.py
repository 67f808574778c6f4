"""Publishing under one producer name at two processes, over REST and WebSocket, before a real broker."""

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until

from penstock.testing.server import Address, running

WAIT_S = 60
NAME = "sensor"

# Publishes one text, with a sequence id or without; returns the message id of the answer.
Publish = Callable[[str, int | None], str]


@pytest.fixture(scope="module")
def servers(pulsar_cluster: PulsarCluster) -> Iterator[list[Address]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(engine=pulsar_cluster.settings)) for _ in range(2)]


@pytest.fixture
def topic(pulsar_namespace: str) -> str:
    return f"{pulsar_namespace}/named-{uuid4().hex[:8]}"


def over_rest(server: Address, topic: str) -> Publish:
    def publish(text: str, sequence_id: int | None) -> str:
        message = {"value": text} if sequence_id is None else {"value": text, "sequenceId": sequence_id}
        body = {"producer_name": NAME, "messages": [message]}
        answer = httpx.post(f"{server.url}/topics/{topic}", json=body, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        (one,) = answer.json()["messageIds"]
        assert one["error_code"] is None, one
        return str(one["messageId"])

    return publish


def over_websocket(stack: ExitStack, server: Address, topic: str) -> Publish:
    url = server.url.replace("http", "ws") + f"/ws/v2/producer/persistent/{topic}?producerName={NAME}"
    socket = websocket.create_connection(url, timeout=WAIT_S)
    stack.callback(socket.close)

    def publish(text: str, sequence_id: int | None) -> str:
        frame: dict[str, Any] = {"payload": base64.b64encode(text.encode()).decode()}
        if sequence_id is not None:
            frame["sequenceId"] = sequence_id
        socket.send(json.dumps(frame))
        answer = json.loads(socket.recv())
        assert answer["result"] == "ok", answer
        return str(answer["messageId"])

    return publish


@pytest.fixture
def ways(servers: list[Address], topic: str) -> Iterator[list[Publish]]:
    """REST and WebSocket at each process; the sockets are open together."""
    with ExitStack() as stack:
        sockets = [over_websocket(stack, server, topic) for server in servers]
        yield [*(over_rest(server, topic) for server in servers), *sockets]


def stored(cluster: PulsarCluster, topic: str) -> list[tuple[str, str]]:
    """The payloads on a topic with the names of their producers, as Pulsar's own client reads them."""
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(WAIT_S * 1000)
            found.append((message.data().decode(), message.producer_name()))
        return found
    finally:
        client.close()


@pytest.fixture
def native(pulsar_cluster: PulsarCluster, topic: str) -> Iterator[pulsar.Client]:
    """A client of Pulsar's."""
    client = pulsar.Client(pulsar_cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def deduplicate(cluster: PulsarCluster, namespace: str, servers: list[Address], topic: str) -> None:
    """Have the broker deduplicate in a namespace, and wait until it does, and every process knows."""
    cluster.admin("POST", f"namespaces/{namespace}/deduplication", json=True)
    cluster.admin("PUT", f"persistent/{topic}")
    until(
        lambda: cluster.admin("GET", f"persistent/{topic}/stats").json()["deduplicationStatus"] == "Enabled"
    )
    path = f"admin/v2/persistent/{topic}/deduplicationEnabled"
    for server in servers:
        until(
            lambda server=server: (
                httpx.get(f"{server.url}/{path}", params={"applied": "true"}, timeout=WAIT_S).json() is True
            )
        )


def test_all_of_one_name_publish_at_once(
    pulsar_cluster: PulsarCluster, topic: str, ways: list[Publish], native: pulsar.Client
) -> None:
    """Beside a client of Pulsar's that has the name, too."""
    producer = native.create_producer(f"persistent://{topic}", producer_name=NAME)
    producer.send(b"native")

    def publish_all(number: int) -> None:
        for each in range(10):  # sequence ids have no meaning without deduplication: all of them repeat
            ways[number](f"{number}.{each}", each if number % 2 else None)

    with ThreadPoolExecutor(len(ways)) as pool:
        list(pool.map(publish_all, range(len(ways))))
    found = stored(pulsar_cluster, topic)
    assert sorted(text for text, _ in found) == sorted(
        ["native", *(f"{number}.{each}" for number in range(len(ways)) for each in range(10))]
    )
    assert {name for _, name in found} == {NAME}


def test_a_numbered_message_is_stored_once_whichever_process_gets_it(
    pulsar_cluster: PulsarCluster,
    pulsar_namespace: str,
    topic: str,
    servers: list[Address],
    request: pytest.FixtureRequest,
    native: pulsar.Client,
) -> None:
    deduplicate(pulsar_cluster, pulsar_namespace, servers, topic)
    ways: list[Publish] = request.getfixturevalue("ways")
    for number in range(8):
        for way in (ways[number % 4], *ways):
            way(f"n{number}", number)
    # Messages without numbers are never repeats, and do not count for the numbers of the others.
    for each in range(20):
        for number, way in enumerate(ways):
            way(f"{number}.{each}", None)
    # The same message through all of them at once.
    with ThreadPoolExecutor(len(ways)) as pool:
        for number in range(8, 12):
            list(pool.map(lambda way, number=number: way(f"n{number}", number), ways))
    # The broker learns what is stored from the entries again.
    pulsar_cluster.admin("PUT", f"persistent/{topic}/unload")
    for number in (11, 12):
        for way in ways:
            way(f"n{number}", number)
    producer = native.create_producer(f"persistent://{topic}", producer_name=NAME)
    assert producer.last_sequence_id() == 12
    producer.send(b"n13")
    ways[0]("n13", 13)
    ways[3]("n14", 14)

    found = stored(pulsar_cluster, topic)
    numbered = [(text, name) for text, name in found if text.startswith("n")]
    assert numbered == [(f"n{number}", NAME) for number in range(15)]
    others = [(text, name) for text, name in found if not text.startswith("n")]
    assert sorted(text for text, _ in others) == sorted(
        f"{number}.{each}" for number in range(4) for each in range(20)
    )
    assert all(name.startswith(f"{NAME}-") for _, name in others)
