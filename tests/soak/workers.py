"""Clients of a soak over HTTP and WebSocket. Each goes on until `over`, whatever becomes of the server."""

import asyncio
import json
import random
import socket
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from .book import Book, Writer
from .server import SoakServer

AGAIN_S: Final = 0.2
NETWORK: Final = (httpx.HTTPError, OSError, WebSocketException, TimeoutError)
BASE: Final = "/topics/public/default"


class Crowd:
    """What all workers share. `pace_s` is between the steps of one."""

    def __init__(self, server: SoakServer, book: Book, pace_s: float) -> None:
        self.server = server
        self.book = book
        self.pace_s = pace_s
        self.over = asyncio.Event()  # publish no more
        self.drained = asyncio.Event()  # consume no more
        self.dice = random.Random(20260601)

    async def rest(self, factor: float = 1.0) -> None:
        """Between two steps; about `pace_s`, ended by `over`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.pace_s * factor * self.dice.uniform(0.5, 1.5)):
                await self.over.wait()

    def count(self, what: str) -> None:
        self.book.events[what] += 1


# -- publishing


async def rest_producer(crowd: Crowd, *, tls: bool) -> None:
    """PIP-64 with sequence ids: repeated until it is answered."""
    writer = crowd.book.writer("rest", "rest", once=True)
    async with crowd.server.http(tls=tls) as http:
        numbers: list[int] = []
        while not crowd.over.is_set():
            numbers = numbers or writer.take(crowd.dice.randint(1, 8))
            messages = [{"value": writer.value(n), "key": writer.key(n), "sequenceId": n} for n in numbers]
            body = {"producer_name": writer.name, "messages": messages}
            try:
                answer = await http.post(f"{BASE}/rest", json=body, headers=crowd.server.headers())
            except NETWORK:
                crowd.count("rest: no answer")
                await crowd.rest()
                continue
            if answer.status_code != 200:
                _expected(crowd, answer)
                await crowd.rest()
                continue
            results = answer.json()["messageIds"]
            stored = [n for n, result in zip(numbers, results, strict=True) if result["error"] is None]
            writer.acknowledged.update(stored)
            numbers = [n for n in numbers if n not in writer.acknowledged]
            await crowd.rest()


def _expected(crowd: Crowd, answer: httpx.Response) -> None:
    """A refusal is one of those that a client can do something about."""
    crowd.count(f"http {answer.status_code}")
    if answer.status_code not in (401, 429, 503):
        crowd.book.broken.append(f"{answer.request.method} {answer.request.url.path}: {answer.text[:200]}")


async def kafka_producer(crowd: Crowd, *, tls: bool) -> None:
    """Plain text, one message a time, repeated without anybody knowing."""
    writer = crowd.book.writer("kafka", "kafka", once=False)
    async with crowd.server.http(tls=tls) as http:
        while not crowd.over.is_set():
            (number,) = writer.take()
            while number not in writer.acknowledged and not crowd.over.is_set():
                headers = {**crowd.server.headers(), "content-type": "text/plain"}
                try:
                    value = writer.value(number)
                    answer = await http.post("/kafka/topics/kafka/0", content=value, headers=headers)
                    if answer.status_code == 204:
                        writer.acknowledged.add(number)
                    else:
                        _expected(crowd, answer)
                except NETWORK:
                    crowd.count("kafka: no answer")
                await crowd.rest()


async def asker(crowd: Crowd) -> None:
    """Requests over HTTP; a reply has to be the one to its request."""
    writer = crowd.book.writer("ask", "asked", once=False)
    async with crowd.server.http() as http:
        while not crowd.over.is_set():
            (number,) = writer.take()
            value = writer.value(number)
            try:
                answer = await http.post(
                    f"{BASE}/asked/request?timeout=5000",
                    json={"value": value},
                    headers=crowd.server.headers(),
                )
            except NETWORK:
                crowd.count("request: no answer")
            else:
                if answer.status_code == 200:
                    writer.acknowledged.add(number)
                    crowd.count("replies")
                    if b64decode(answer.json()["replyContent"]).decode() != value[::-1]:
                        crowd.book.broken.append(f"{value[:40]} got another's reply")
                elif answer.status_code != 504:
                    _expected(crowd, answer)
            await crowd.rest()


async def ws_producer(crowd: Crowd, *, tls: bool) -> None:
    """One frame at a time under its sequence id, or several without; now and then the connection is cut."""
    once = crowd.dice.random() < 0.5
    writer = crowd.book.writer("ws", "ws", once=once)
    path = "/ws/v2/producer/persistent/public/default/ws" + (f"?producerName={writer.name}" if once else "")
    waiting: list[int] = []

    async def exchange(ws: ClientConnection) -> None:
        nonlocal waiting
        while not crowd.over.is_set():
            waiting = waiting or writer.take(1 if once else crowd.dice.randint(1, 10))
            for number in waiting:
                frame: dict[str, Any] = {"payload": _text(writer.value(number)), "context": str(number)}
                frame["key"] = writer.key(number)
                if once:
                    frame["sequenceId"] = number
                await ws.send(json.dumps(frame))
            if crowd.dice.random() < 0.005:
                crowd.count("ws: cut")
                ws.transport.abort()
            failed = False
            for _ in list(waiting):
                answer = json.loads(await asyncio.wait_for(ws.recv(), 60))
                if answer["result"] == "ok":
                    writer.acknowledged.add(int(answer["context"]))
                else:
                    crowd.count(answer["result"])
                    failed = True
            waiting = [n for n in waiting if n not in writer.acknowledged]
            if failed and not once:
                waiting = []  # others of the group may be stored: to send it again would be out of order
            await crowd.rest()
        waiting = []

    await _connected(crowd, path, tls, exchange, crowd.over)


async def _connected(crowd: Crowd, path: str, tls: bool, exchange: Any, over: asyncio.Event) -> None:
    """Connect, exchange frames, and again."""
    base = crowd.server.wss if tls else crowd.server.ws
    trust = {"ssl": crowd.server.trust} if tls else {}
    while not over.is_set():
        try:
            headers = crowd.server.headers()
            async with connect(
                base + path, additional_headers=headers, proxy=None, open_timeout=20, **trust
            ) as ws:
                await exchange(ws)
        except NETWORK as error:
            crowd.count(f"ws: {type(error).__name__}")
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await over.wait()


# -- consuming


async def ws_consumer(crowd: Crowd, topic: str, *, tls: bool) -> None:
    """Acknowledges everything, and remembers which of it was answered."""
    book = crowd.book

    async def exchange(ws: ClientConnection) -> None:
        owed: dict[str, str] = {}
        while not crowd.drained.is_set():
            try:
                frame = json.loads(await asyncio.wait_for(ws.recv(), 0.5))
            except TimeoutError:
                continue
            if "payload" not in frame:
                if frame.get("result") == "ok":
                    book.settled.add(owed.pop(frame["context"]))
                continue
            message_id = frame["messageId"]
            value = b64decode(frame["payload"]).decode()
            book.received(topic, message_id, value)
            owed[message_id] = message_id
            answer = {"messageId": message_id, "context": message_id}
            if topic == "asked":
                answer |= {"replyContent": _text(value[::-1]), "isErrorResult": False}
            await ws.send(json.dumps(answer))

    path = (
        f"/ws/v2/consumer/persistent/public/default/{topic}/all?subscriptionType=Shared&receiverQueueSize=100"
    )
    await _connected(crowd, path, tls, exchange, crowd.drained)


# -- trouble


async def nuisance(crowd: Crowd) -> None:
    """Half requests, bodies that end early, readers that do not read, noise; each is cut sooner or later."""
    server = crowd.server
    head = "Host: a\r\nAuthorization: Bearer {}\r\n"
    while not crowd.over.is_set():
        kind = crowd.dice.choice(("half a head", "half a body", "unread", "noise", "pulsar noise"))
        url = server.pulsar if kind == "pulsar noise" else server.url
        host, _, port = url.partition("://")[2].rpartition(":")
        made = socket.socket()
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(made, (host, int(port)))
            ask = head.format(server.token())
            match kind:
                case "half a head":
                    sent = b"POST /topics/public/default/cut HTTP/1.1\r\nHo"
                case "half a body":
                    sent = f"POST {BASE}/cut HTTP/1.1\r\n{ask}Content-Length: 1000\r\n\r\n".encode()
                    sent += b'{"messages": [{"value": "never"}'
                case "unread":
                    sent = (
                        f"GET {BASE}/rest/partitions/0/messages?offset=0 HTTP/1.1\r\n{ask}\r\n".encode() * 5
                    )
                case _:
                    sent = crowd.dice.randbytes(200)
            await loop.sock_sendall(made, sent)
            crowd.count(kind)
            await crowd.rest(5)
        except OSError:
            await crowd.rest()
        finally:
            made.close()


async def passing(crowd: Crowd) -> None:
    """Publishes where everything goes at once, so that retention and expiry have work."""
    async with crowd.server.http() as http:
        while not crowd.over.is_set():
            body = {"messages": [{"value": "y" * 500} for _ in range(20)]}
            with suppress(*NETWORK):
                await http.post("/topics/public/short/gone", json=body, headers=crowd.server.headers())
            await crowd.rest()


def abandoned(writer: Writer) -> int:
    """How many were attempted and never answered."""
    return len(set(writer.attempts) - writer.acknowledged)


def _text(value: str) -> str:
    return b64encode(value.encode()).decode()
