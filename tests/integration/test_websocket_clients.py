"""Other people's clients: the examples of Pulsar's documentation, with `websocket-client` and with Node's `ws`."""

import asyncio
import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import websocket
from tests.support.waiting import until_async
from tests.support.websocket import CONSUMER, PRODUCER, WebSocketServer

T = TypeVar("T")

JS = Path(__file__).parents[1] / "js"


async def elsewhere(work: Callable[..., T], *arguments: Any) -> T:
    """Run a client that blocks, beside the server's loop."""
    return await asyncio.to_thread(work, *arguments)


def node(script: str, url: str) -> str:
    """What a script of tests/js prints."""
    done = subprocess.run(
        ["node", str(JS / script), url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- Python, as the documentation has it


def produce(url: str) -> dict[str, Any]:
    TOPIC = url + "/ws/v2/producer/persistent/public/default/my-topic"  # noqa: N806

    ws = websocket.create_connection(TOPIC)

    # Send one message as JSON
    ws.send(
        json.dumps(
            {
                "payload": base64.b64encode(b"Hello World").decode(),
                "properties": {"key1": "value1", "key2": "value2"},
                "context": 5,
            }
        )
    )

    response = json.loads(ws.recv())
    if response["result"] == "ok":
        print("Message published successfully")
    else:
        print("Failed to publish message:", response)
    ws.close()
    return response


def consume(topic: str) -> list[tuple[str, bytes]]:
    ws = websocket.create_connection(topic)
    received = []
    while True:
        msg = json.loads(ws.recv())
        if not msg:
            break

        print(f"Received: {msg} - payload: {base64.b64decode(msg['payload'])!r}")
        received.append((msg["messageId"], base64.b64decode(msg["payload"])))

        # Acknowledge successful processing
        ws.send(json.dumps({"messageId": msg["messageId"]}))
        break  # the documentation's example goes on for ever
    ws.close()
    return received


async def test_the_python_examples(capsys: pytest.CaptureFixture[str]) -> None:
    async with WebSocketServer.open() as server:
        response = await elsewhere(produce, server.ws)
        assert response["context"] == "5"
        assert capsys.readouterr().out == "Message published successfully\n"
        for path in (
            "/ws/v2/consumer/persistent/public/default/my-topic/my-sub?subscriptionInitialPosition=Earliest",
            "/ws/v2/reader/persistent/public/default/my-topic?messageId=earliest",
        ):
            received = await elsewhere(consume, server.ws + path)
            assert received == [(response["messageId"], b"Hello World")]
        await until_async(lambda: len(server.sockets) == 0)
        for topic in server.broker.topics.open_topics:
            assert topic.subscriptions["my-sub"].backlog == 0


async def test_websocket_client_sees_why_it_is_refused() -> None:
    async with WebSocketServer.open() as server:

        def connect() -> None:
            ws = websocket.WebSocket()
            try:
                ws.connect(f"{server.ws}{CONSUMER}/t/s?receiverQueueSize=x")
            finally:
                ws.shutdown()

        with pytest.raises(websocket.WebSocketBadStatusException) as caught:
            await elsewhere(connect)
        assert caught.value.status_code == 400
        assert b"For input string" in caught.value.resp_body


async def test_websocket_client_sees_the_close_code() -> None:
    async with WebSocketServer.open() as server:

        def closed() -> tuple[int, str]:
            ws = websocket.create_connection(f"{server.ws}{CONSUMER}/t/s")
            ws.send("{")
            opcode, data = ws.recv_data()
            ws.shutdown()
            assert opcode == websocket.ABNF.OPCODE_CLOSE
            return int.from_bytes(data[:2], "big"), data[2:].decode()

        assert await elsewhere(closed) == (4003, "Failed to de-serialize from JSON")


async def test_pings_of_a_client_are_answered() -> None:
    async with WebSocketServer.open() as server:

        def ping() -> bytes:
            ws = websocket.create_connection(f"{server.ws}{PRODUCER}/t")
            ws.ping("still there")
            opcode, data = ws.recv_data(control_frame=True)
            ws.close()
            assert opcode == websocket.ABNF.OPCODE_PONG
            return bytes(data)

        assert await elsewhere(ping) == b"still there"


# -- Node


async def test_the_node_examples() -> None:
    async with WebSocketServer.open() as server:
        printed = await elsewhere(node, "producer.mjs", server.ws)
        ack = json.loads(printed.removeprefix("received ack: "))
        assert (ack["result"], ack["context"]) == ("ok", "1")
        for script in ("consumer.mjs", "reader.mjs"):
            printed = await elsewhere(node, script, server.ws)
            assert printed.endswith(" - payload: Hello World\n")
            frame = json.loads(printed.removeprefix("Received: ").removesuffix(" - payload: Hello World\n"))
            assert frame["messageId"] == ack["messageId"]
            assert frame["properties"] == {"key1": "value1", "key2": "value2"}
        await until_async(lambda: len(server.sockets) == 0)
        for topic in server.broker.topics.open_topics:
            assert topic.subscriptions["my-sub"].backlog == 0


async def test_pull_mode_from_node() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect("/ws/v2/producer/persistent/public/default/pulled")
        await sending.publish(*"abcdefg")
        assert (await elsewhere(node, "pull.mjs", server.ws)).split() == list("abcde")


async def test_a_refusal_seen_from_node() -> None:
    async with WebSocketServer.open() as server:
        printed = await elsewhere(node, "refused.mjs", server.ws)
        assert printed == "400 Invalid query params: Invalid subscriptionType X\n"
