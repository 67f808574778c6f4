"""A WebSocket endpoint, or a whole server, on a real socket in the loop of the test, and clients for it."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.routing import Router
from tests.waiting import until_async
from websockets.asyncio.client import ClientConnection, connect

from penstock.broker.settings import BrokerSettings
from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.memory import MemoryStore
from penstock.engines.embedded.ports import Store
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.context import ServerContext
from penstock.protocols.limits import Limits
from penstock.protocols.websocket.endpoint import routes
from penstock.protocols.websocket.socket import Sockets
from penstock.runtime.clock import Clock, LoopClock
from penstock.server.app import build_for
from penstock.testing.clock import settle
from penstock.wire.entry import WireFormat

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


class EndpointServer:
    """The endpoint, its broker, and where it is."""

    def __init__(self, context: ServerContext, sockets: Sockets, port: int) -> None:
        self.context = context
        self.broker = context.broker
        self.sockets = sockets
        self.port = port
        self.peers: list[Peer] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def connect(self, path: str, **options: Any) -> Peer:
        """A client, closed with the server."""
        connection = await connect(self.url + path, compression=None, proxy=None, **options)
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

    async def until(self, condition: Any) -> None:
        """Let the loop run until something is so."""
        await until_async(condition)


@asynccontextmanager
async def endpoint(
    *,
    clock: Clock | None = None,
    store: Store | None = None,
    settings: BrokerSettings | None = None,
    limits: Limits | None = None,
    auth: AuthSettings | None = None,
    whole: bool = False,
) -> AsyncIterator[EndpointServer]:
    """Serve on a free port of the loopback interface; `whole` serves every endpoint."""
    limits = limits or Limits()
    broker = Broker(
        store or MemoryStore(), MemoryStore(1 << 40), WireFormat(), clock or LoopClock(), settings
    )
    await broker.start()
    context = ServerContext(broker, limits, authenticator(auth or AuthSettings(), broker))
    app = build_for(context) if whole else None
    sockets = Sockets() if app is None else app.sockets
    server = uvicorn.Server(
        uvicorn.Config(
            Router(routes(context, sockets)) if app is None else app.asgi,
            port=0,
            loop="none",
            ws="websockets-sansio",
            lifespan="off",
            log_level="critical",
            ws_max_size=limits.max_frame_bytes,
        )
    )
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    serving = EndpointServer(context, sockets, server.servers[0].sockets[0].getsockname()[1])
    try:
        yield serving
    finally:
        for peer in serving.peers:
            await peer.close()
        await server.shutdown()
        await serving.until(lambda: len(sockets) == 0)
        await (broker if app is None else app).close()
