"""Namespaces that take encrypted messages alone: who publishes such messages says so to the broker."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
import websocket
from tests.support.pulsar_broker import PulsarCluster

from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.testing.server import Address, running
from penstock.wire import entry as wire
from penstock.wire.bulk import pack_sections

SEALED: Final = b"\x00sealed\xff"
PARAM: Final = b"initial vector"
KEYS: Final = {"mine": {"keyValue": b64encode(b"key").decode(), "metadata": {"version": "1"}}}
IN_KEYS: Final = f"encryptionKeys={quote(b64encode(json.dumps(KEYS).encode()).decode())}"
WAIT_S: Final = 60


@pytest.fixture(scope="module")
def server(pulsar_cluster: PulsarCluster) -> Iterator[Address]:
    with running(engine=pulsar_cluster.settings) as address:
        yield address


@pytest.fixture
def path(pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> str:
    """Of a topic in such a namespace."""
    pulsar_cluster.admin("POST", f"namespaces/{pulsar_namespace}/encryptionRequired", json=True)
    return f"{pulsar_namespace}/sealed"


@pytest.fixture
def sockets(server: Address) -> Iterator[Any]:
    """Opens WebSockets, by kind, path and query."""
    opened: list[websocket.WebSocket] = []

    def connect(kind: str, path: str, query: str = "") -> websocket.WebSocket:
        url = f"{server.ws}/ws/v2/{kind}/persistent/{path}?{query}"
        opened.append(websocket.create_connection(url, timeout=WAIT_S))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def ask(socket: websocket.WebSocket, frame: dict[str, Any]) -> Any:
    socket.send(json.dumps(frame))
    return json.loads(socket.recv())


def publish(socket: websocket.WebSocket) -> Any:
    return ask(socket, {"payload": b64encode(SEALED).decode(), "encryptionParam": b64encode(PARAM).decode()})


def check(frame: Any) -> None:
    """It came as it was published."""
    assert frame["payload"] == b64encode(SEALED).decode()
    assert frame["encryptionContext"]["param"] == b64encode(PARAM).decode()
    assert frame["encryptionContext"]["keys"] == KEYS


def test_messages_that_come_encrypted(sockets: Any, path: str) -> None:
    receiving = sockets("consumer", f"{path}/s", "subscriptionInitialPosition=Earliest")
    assert publish(sockets("producer", path, IN_KEYS))["result"] == "ok"
    check(json.loads(receiving.recv()))


def test_dead_letters_stay_encrypted(sockets: Any, path: str) -> None:
    policy = f"subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic={quote(path + '-dead', safe='')}"
    letters = sockets("consumer", f"{path}-dead/s", "subscriptionInitialPosition=Earliest")
    receiving = sockets("consumer", f"{path}/s", f"{policy}&negativeAckRedeliveryDelay=100")
    assert publish(sockets("producer", path, IN_KEYS))["result"] == "ok"
    for _ in range(2):
        frame = json.loads(receiving.recv())
        receiving.send(json.dumps({"type": "negativeAcknowledge", "messageId": frame["messageId"]}))
    check(json.loads(letters.recv()))


def test_others_are_refused(server: Address, sockets: Any, path: str) -> None:
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        sockets("producer", path)
    assert 400 <= refused.value.status_code < 500
    answer = httpx.post(f"{server.url}/topics/{path}", json={"messages": [{"value": "x"}]}, timeout=WAIT_S)
    assert answer.status_code == 400, answer.text
    assert "ncryption is required" in answer.json()["message"]


def test_whole_entries_that_are_encrypted(server: Address, sockets: Any, path: str) -> None:
    receiving = sockets("consumer", f"{path}/s", "subscriptionInitialPosition=Earliest")
    encryption = Encryption((EncryptionKey("mine", b"key", {"version": "1"}),), PARAM)
    message = OutMessage(payload=SEALED, encryption=encryption)
    entry = wire.encode([message], producer="p", sequence_id=0, publish_time=1, schema_version=None)
    body = b"".join(pack_sections([(f"persistent://{path}", [entry.data])]))
    headers = {"content-type": "application/vnd.penstock.sections"}
    answer = httpx.post(f"{server.url}/entries", content=body, headers=headers, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    check(json.loads(receiving.recv()))
