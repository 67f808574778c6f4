"""A server on a real socket in the loop of the test, and clients of its WebSocket endpoint."""

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from penstock.protocols.websocket.socket import Sockets
from penstock.runtime.clock import LoopClock
from penstock.testing.clock import settle
from tests.support.server import RunningServer
from tests.support.waiting import until_async

PRODUCER = "/ws/v2/producer/persistent/public/default"
CONSUMER = "/ws/v2/consumer/persistent/public/default"
READER = "/ws/v2/reader/persistent/public/default"
TOPICS = "/ws/v3/consumer"


class Peer:
    """A client, by the `websockets` library."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, frame: Any) -> None:
        await self.connection.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(await self.connection.recv())
        return frame

    async def ask(self, frame: Any) -> dict[str, Any]:
        """Send a frame and receive the next."""
        await self.send(frame)
        return await self.receive()

    async def publish(self, *payloads: str, **fields: Any) -> list[str]:
        """Publish texts; the messages' ids."""
        for payload in payloads:
            await self.send({"payload": base64(payload), **fields})
        answers = [await self.receive() for _ in payloads]
        assert all(answer["result"] == "ok" for answer in answers), answers
        return [answer["messageId"] for answer in answers]

    async def take(self, count: int) -> list[str]:
        """The texts of the next messages, which are acknowledged."""
        frames = [await self.receive() for _ in range(count)]
        for frame in frames:
            await self.send({"messageId": frame["messageId"]})
        return [text(frame) for frame in frames]

    async def nothing_more(self) -> None:
        """Nothing is delivered: every step the server has to take is taken, and an answer comes first."""
        await settle(50)
        for fence in ("fence-1", "fence-2"):
            answer = await self.ask({"type": "isEndOfTopic", "context": fence})
            assert answer["context"] == fence, answer
            await settle(50)

    async def fence(self) -> None:
        """Return once the server has read what was sent so far: it answers a ping in its turn."""
        await (await self.connection.ping())
        await settle(50)

    async def closed(self) -> tuple[int | None, str]:
        """Wait until the server closes; the code and the reason."""
        await self.connection.wait_closed()
        return self.connection.close_code, self.connection.close_reason or ""

    async def close(self) -> None:
        await self.connection.close()


def base64(payload: str) -> str:
    return b64encode(payload.encode()).decode()


def text(frame: dict[str, Any]) -> str:
    return b64decode(frame["payload"]).decode()


class WebSocketServer(RunningServer):
    """Its clients are closed with it. Time is the machine's, unless the test says otherwise."""

    listens = True
    clock_type = LoopClock

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.peers: list[Peer] = []

    @property
    def sockets(self) -> Sockets:
        return self.app.sockets

    async def connect(self, path: str, **options: Any) -> Peer:
        """A client, closed with the server."""
        options = {"open_timeout": 60, **options}
        connection = await connect(self.ws + path, compression=None, proxy=None, **options)
        peer = Peer(connection)
        self.peers.append(peer)
        return peer

    async def upgrade(self, path: str, *headers: str) -> tuple[int, str]:
        """The status and body of an upgrade, as raw HTTP."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: localhost",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Version: 13",
            *headers,
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split()[1])
        body = "" if status == 101 else (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return status, body

    async def disconnect(self) -> None:
        for peer in self.peers:
            await peer.close()
        await until_async(lambda: len(self.sockets) == 0)
