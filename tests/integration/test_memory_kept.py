"""What stays of clients that are through: of idle connections no message, and no more of many attacks than of one."""

import base64
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.integration.test_memory_attacks import (
    MANY,
    WARM,
    binary_readers,
    pytestmark,  # noqa: F401
    rest_readers,
    websocket_readers,
)
from tests.support.attacks import (
    HELLO,
    MIB,
    SOAK,
    Memory,
    attacked,
    connected,
    emptied,
    fill,
    head_of_frame,
    settled,
    subscribed,
    upgrade,
)

from penstock.model.message import OutMessage
from penstock.testing.server import Launched
from penstock.wire import entry as wire
from penstock.wire.frames import encode, encode_with_entry
from penstock.wire.pulsar_pb2 import BaseCommand, CommandProducer, CommandSend

ROUNDS = 14 if SOAK else 5
CONNECTIONS = 2 * MANY  # of a message of 1 MiB each: what the allocator has left from before hides some of it
ANSWER_S = 60.0
PATH = "persistent/public/default/one"


def received(client: socket.socket, least: int, end: bytes = b"") -> bytes:
    """What comes: at least so much, and up to `end`."""
    found = bytearray()
    while len(found) < least or end not in found[-len(end) - 100 :]:
        piece = client.recv(MIB)
        assert piece, bytes(found[:1000])
        found += piece
    return bytes(found)


def opened(url: str, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(closing(connected(url)))
    client.settimeout(ANSWER_S)
    return client


def websocket(path: str, text: bytes) -> Callable[[Launched, ExitStack], None]:
    """A frame of the client, and its answer."""

    def run(server: Launched, stack: ExitStack) -> None:
        client = opened(server.url, stack)
        client.sendall(upgrade(f"/ws/v2/{path}"))
        received(client, 1, b"\r\n\r\n")
        client.sendall(head_of_frame(len(text)) + text)
        received(client, 1, b"}")

    return run


def binary_producer(server: Launched, stack: ExitStack) -> None:
    client = opened(server.pulsar, stack)
    name = f"p-{client.getsockname()[1]}"
    begun = CommandProducer(
        topic=PATH.replace("/", "://", 1), producer_id=1, request_id=1, producer_name=name
    )
    client.sendall(HELLO + encode(BaseCommand(type=BaseCommand.PRODUCER, producer=begun)))
    received(client, 1, name.encode())
    entry = wire.encode(
        (OutMessage(payload=bytes(MIB)),), producer=name, sequence_id=0, publish_time=1, schema_version=None
    )
    send = CommandSend(producer_id=1, sequence_id=0)
    client.sendall(b"".join(encode_with_entry(BaseCommand(type=BaseCommand.SEND, send=send), entry.data)))
    received(client, 1)


def binary_reader(server: Launched, stack: ExitStack) -> None:
    client = opened(server.pulsar, stack)
    client.sendall(subscribed(PATH.replace("/", "://", 1), f"s-{client.getsockname()[1]}"))
    received(client, MIB)


def rest_follower(server: Launched, stack: ExitStack) -> None:
    client = opened(server.url, stack)
    client.sendall(
        b"GET /topics/public/default/one/partitions/0/messages?offset=0 HTTP/1.1\r\nHost: a\r\n"
        b"Accept: text/event-stream\r\n\r\n"
    )
    received(client, MIB)


PUBLISHED = b'{"payload": "%s", "context": "c"}' % base64.b64encode(bytes(MIB))
COMMAND = b'{"type": "negativeAcknowledge", "messageId": "%s", "context": "c"}' % (b"a" * MIB)
THROUGH = {
    "WebSocket producers": websocket(f"producer/{PATH}", PUBLISHED),
    "WebSocket consumers": websocket(f"consumer/{PATH}/s?subscriptionType=Shared", COMMAND),
    "WebSocket readers": websocket(f"reader/{PATH}", COMMAND),
    "binary producers": binary_producer,
    "binary readers": binary_reader,
    "REST followers": rest_follower,
}


@pytest.mark.parametrize("what", THROUGH)
def test_an_idle_connection_holds_no_message(what: str, tmp_path: Path) -> None:
    with attacked(tmp_path) as server, ExitStack() as stack:
        fill(server, "big", 40, MIB)
        fill(server, "one", 1, MIB)
        memory = Memory(server.process.pid)
        for _ in range(CONNECTIONS):
            THROUGH[what](server, stack)
        back = memory.comes_back(WARM)
        print(
            f"\n{CONNECTIONS} {what}: {memory.peak / MIB:.0f} MiB at most, {memory.now / MIB:.0f} MiB after"
        )
        assert back


@pytest.mark.parametrize(
    "attack",
    [
        binary_readers,
        pytest.param(websocket_readers, marks=pytest.mark.skipif(not SOAK, reason="with the others")),
        pytest.param(rest_readers, marks=pytest.mark.skipif(not SOAK, reason="with the others")),
    ],
)
def test_many_attacks_leave_no_more_than_one(
    attack: Callable[[Launched, ExitStack], list[socket.socket]], tmp_path: Path
) -> None:
    with attacked(tmp_path) as server:
        fill(server, "big", 40, MIB)
        memory = Memory(server.process.pid)
        for _ in range(ROUNDS):
            with ExitStack() as stack:
                attack(server, stack)
                settled(server)
            assert emptied(server)
        back = memory.comes_back(WARM)
        print(f"\n{ROUNDS} times {attack.__name__}: {memory.now / MIB:.0f} MiB after")
        assert back
