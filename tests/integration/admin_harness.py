"""A server's whole application over memory, and a client in the same process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from penstock.broker.settings import BrokerSettings
from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.protocols.context import ServerContext
from penstock.protocols.limits import Limits
from penstock.server.app import build_for
from penstock.testing.clock import ManualClock
from penstock.wire.entry import WireFormat

ADMIN = "/admin/v2/persistent/public/default"


class Office:
    """The application, its broker and a client with short names."""

    def __init__(
        self, broker: Broker, context: ServerContext, clock: ManualClock, client: httpx.AsyncClient
    ) -> None:
        self.broker = broker
        self.context = context
        self.clock = clock
        self.client = client

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200, **params: Any) -> Any:
        response = await self.client.request(method, path, json=body, params=params or None)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        if status == 204:
            assert not response.content
        return response.json() if response.content else None

    async def get(self, path: str, status: int = 200, **params: Any) -> Any:
        return await self.ask("GET", path, None, status, **params)

    async def put(self, path: str, body: Any = None, status: int = 204, **params: Any) -> Any:
        return await self.ask("PUT", path, body, status, **params)

    async def post(self, path: str, body: Any = None, status: int = 204, **params: Any) -> Any:
        return await self.ask("POST", path, body, status, **params)

    async def delete(self, path: str, status: int = 204, **params: Any) -> Any:
        return await self.ask("DELETE", path, None, status, **params)

    async def produce(self, topic: str, *values: str) -> list[str]:
        """Publish texts; returns their ids."""
        messages = [{"value": value} for value in values]
        answer = await self.post(f"/topics/public/default/{topic}", {"messages": messages}, 200)
        return [slot["messageId"] for slot in answer["messageIds"]]


@asynccontextmanager
async def office(
    settings: BrokerSettings | None = None, limits: Limits | None = None
) -> AsyncIterator[Office]:
    """Open an office, and close everything after it."""
    clock = ManualClock()
    broker = Broker(MemoryStore(), MemoryStore(TRANSIENT_LEDGERS), WireFormat(), clock, settings)
    context = ServerContext(broker, limits)
    app = build_for(context)
    await app.context.broker.start()
    transport = httpx.ASGITransport(app.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://office") as client:
        yield Office(broker, context, clock, client)
    await app.close()
