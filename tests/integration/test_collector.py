"""What a connection or a consumer instance leaves when it ends: nothing that the garbage collector would find much later.

A circle of objects may hold messages: memory would grow with the connections that ended, while nothing counts it.
"""

import gc
import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.support.attacks import HELLO, connected, head_of_frame, subscribed, upgrade
from tests.support.waiting import until

from penstock.engines.core.topic.producer import Producer
from penstock.engines.subscription import Consumer
from penstock.protocols import binary, websocket
from penstock.protocols.binary.connection import Connection
from penstock.protocols.binary.session import Session
from penstock.protocols.websocket.socket import Socket
from penstock.server.sockets import WebSocketConnection
from penstock.testing.server import Address, running
from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandProducer,
    CommandSubscribe,
    CommandWatchTopicList,
)

TOPIC = "persistent://public/default/t"
PATH = "persistent/public/default/t"
PUBLISHED = b'{"payload": "YWFh", "context": "c"}'
GONE_S = 20.0
KINDS = (
    Connection,
    Session,
    WebSocketConnection,
    Socket,
    Producer,
    Consumer,
    binary.consumer.ConsumerHandler,
    binary.producer.ProducerHandler,
    binary.topic_lists.TopicListWatch,
    websocket.consumer.ConsumerHandler,
    websocket.consumer.ReaderHandler,
    websocket.producer.ProducerHandler,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as started:
        yield started


def subscribe(kind: "CommandSubscribe.SubType") -> bytes:
    asked = CommandSubscribe(topic=TOPIC, subscription=f"s-{kind}", subType=kind, consumer_id=1, request_id=1)
    flow = CommandFlow(consumer_id=1, messagePermits=1000)
    return encode(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=asked)) + encode(
        BaseCommand(type=BaseCommand.FLOW, flow=flow)
    )


WATCH = CommandWatchTopicList(request_id=1, watcher_id=1, namespace="public/default", topics_pattern=".*")
PRODUCER = CommandProducer(topic=TOPIC, producer_id=1, request_id=1)
BINARY = {
    "nothing": HELLO,
    "producer": HELLO + encode(BaseCommand(type=BaseCommand.PRODUCER, producer=PRODUCER)),
    "reader": subscribed(TOPIC, "reader"),
    "list of topics": HELLO + encode(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watch_topic_list=WATCH)),
    **{
        f"{name} consumer": HELLO + subscribe(CommandSubscribe.SubType.Value(name))
        for name in ("Exclusive", "Shared", "Failover", "Key_Shared")
    },
}
WEBSOCKET = {
    "producer": (f"/ws/v2/producer/{PATH}", PUBLISHED),
    "reader": (f"/ws/v2/reader/{PATH}?messageId=earliest", b"{}"),
    **{
        f"{kind} consumer": (
            f"/ws/v2/consumer/{PATH}/{kind}?subscriptionType={kind}&subscriptionInitialPosition=Earliest",
            b'{"type": "isEndOfTopic"}',
        )
        for kind in ("Exclusive", "Shared", "Failover", "Key_Shared")
    },
}


def of_connections() -> list[object]:
    return [one for one in gc.get_objects() if type(one) in KINDS]


@pytest.fixture
def before() -> Iterator[set[int]]:
    """What earlier connections left; nothing is collected in the test."""
    gc.collect()
    gc.disable()
    kept = of_connections()
    try:
        yield {id(one) for one in kept}
    finally:
        gc.enable()


def all_gone(before: set[int]) -> None:
    until(
        lambda: all(id(one) in before for one in of_connections()),
        GONE_S,
        said=lambda: [
            (type(one), [type(by) for by in gc.get_referrers(one)])
            for one in of_connections()
            if id(one) not in before
        ],
    )


def exchange(client: socket.socket, sent: bytes) -> bytes:
    client.sendall(sent)
    return client.recv(100_000)


@pytest.mark.parametrize("what", BINARY)
def test_over_the_binary_protocol(what: str, server: Address, before: set[int]) -> None:
    with closing(connected(server.pulsar, address="127.0.0.1")) as client:
        client.settimeout(GONE_S)
        exchange(client, BINARY[what])
        ping = encode(BaseCommand(type=BaseCommand.PING, ping={}))
        until(lambda: any(id(one) not in before for one in of_connections()))
        exchange(client, ping)  # what came before is done
    all_gone(before)


@pytest.mark.parametrize("leaves", ["well", "lost"])
@pytest.mark.parametrize("what", WEBSOCKET)
def test_over_websocket(what: str, leaves: str, server: Address, before: set[int]) -> None:
    path, text = WEBSOCKET[what]
    with closing(connected(server.url, address="127.0.0.1")) as client:
        client.settimeout(GONE_S)
        found = exchange(client, upgrade(path))
        assert b" 101 " in found
        while not found.endswith(b"}"):  # the answer, or a message
            found += exchange(client, head_of_frame(len(text)) + text)
        if leaves == "well":
            client.sendall(head_of_frame(2, opcode=8) + b"\x03\xe8")
            while client.recv(100_000):
                pass
    all_gone(before)


def request(method: str, path: str, body: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_an_instance_that_is_removed(server: Address, before: set[int]) -> None:
    """Its deadline may be years away."""
    with closing(connected(server.url, address="127.0.0.1")) as client:
        client.settimeout(GONE_S)
        path = "/topics/public/default/t/subscription/rest"
        made = exchange(client, request("POST", path, b'{"consumer_timeout_ms": 100000000000}'))
        path += "/consumer/" + json.loads(made.partition(b"\r\n\r\n")[2])["id"]
        assert b" 200 " in exchange(client, request("GET", f"{path}/messages?timeout=0"))
        assert any(id(one) not in before for one in of_connections())
        assert b" 204 " in exchange(client, request("DELETE", path))
        all_gone(before)
