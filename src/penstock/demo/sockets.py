"""Over WebSocket: one producer and one consumer at the same time, and a consumer that replies."""

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from penstock.model.names import TopicName

IN_FLIGHT: Final = 32  # published and not yet answered
ANSWER_S: Final = 30.0


def _place(topic: TopicName) -> str:
    return f"{topic.domain}/{topic.tenant}/{topic.namespace}/{quote(topic.local, safe='')}"


def follow(
    ws: str, topic: TopicName, count: int, show: Callable[[int, Any, float], None]
) -> threading.Thread:
    """Consume `count` messages in a thread; `show` is called with each, and how many ms it took.

    Subscribed when this returns.
    """
    url = f"{ws}/ws/v2/consumer/{_place(topic)}/demo?subscriptionType=Exclusive"
    socket = _open(url)

    def run() -> None:
        with socket:
            for number in range(count):
                frame = msgspec.json.decode(socket.recv(ANSWER_S))
                value = msgspec.json.decode(b64decode(frame["payload"]))
                taken_ms = time.time() * 1000 - float(frame["properties"]["sent"])
                show(number, value, taken_ms)
                socket.send(msgspec.json.encode({"messageId": frame["messageId"]}).decode())

    thread = threading.Thread(target=run, name="follower", daemon=True)
    thread.start()
    return thread


def reply(ws: str, topic: TopicName, count: int, answer: Callable[[str], str]) -> threading.Thread:
    """Reply to `count` requests in a thread, each with what `answer` makes of its text. Subscribed when this returns."""
    socket = _open(f"{ws}/ws/v2/consumer/{_place(topic)}/demo?subscriptionType=Exclusive")

    def run() -> None:
        with socket:
            for _ in range(count):
                frame = msgspec.json.decode(socket.recv(ANSWER_S))
                content = b64encode(answer(b64decode(frame["payload"]).decode()).encode()).decode()
                said = {"messageId": frame["messageId"], "replyContent": content}
                socket.send(msgspec.json.encode(said).decode())

    thread = threading.Thread(target=run, name="replier", daemon=True)
    thread.start()
    return thread


def publish(ws: str, topic: TopicName, values: Sequence[Any]) -> float:
    """Publish values one by one, each answered when it is durable; returns how many seconds it took."""
    started = time.perf_counter()
    with _open(f"{ws}/ws/v2/producer/{_place(topic)}") as socket:
        waiting = 0
        for value in values:
            frame = {
                "payload": b64encode(msgspec.json.encode(value)).decode(),
                "properties": {"sent": f"{time.time() * 1000:.3f}"},
                "context": "demo",
            }
            socket.send(msgspec.json.encode(frame).decode())
            waiting += 1
            if waiting == IN_FLIGHT:
                _answered(socket)
                waiting -= 1
        for _ in range(waiting):
            _answered(socket)
    return time.perf_counter() - started


def _answered(socket: ClientConnection) -> None:
    answer = msgspec.json.decode(socket.recv(ANSWER_S))
    if answer["result"] != "ok":
        raise click.ClickException(f"a message was refused over WebSocket: {answer}")


def _open(url: str) -> ClientConnection:
    try:
        return connect(url, compression=None, proxy=None)
    except (OSError, WebSocketException) as error:
        raise click.ClickException(f"{url} cannot be reached: {error}") from None
