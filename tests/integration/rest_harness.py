"""A broker over memory with the REST endpoint before it, and a client in the same process."""

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.memory import MemoryStore
from penstock.protocols.context import ServerContext
from penstock.protocols.limits import Limits
from penstock.protocols.rest.endpoint import RestEndpoint
from penstock.testing.clock import ManualClock
from penstock.wire.entry import WireFormat

TOPIC = "/topics/public/default/t"


class House:
    """The broker, its clock and the endpoint, with short names for what tests do most."""

    def __init__(
        self,
        broker: Broker,
        clock: ManualClock,
        context: ServerContext,
        client: httpx.AsyncClient,
        endpoint: RestEndpoint,
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.context = context
        self.client = client
        self.endpoint = endpoint

    async def get(self, path: str, **params: Any) -> Any:
        response = await self.client.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        response = await self.client.post(path, content=msgspec.json.encode(body))
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def produce(self, *values: Any, path: str = TOPIC, **request: Any) -> list[str]:
        """Publish values and return their ids."""
        answer = await self.post(path, {**request, "messages": [{"value": value} for value in values]})
        return [slot["messageId"] for slot in answer["messageIds"]]

    async def values(self, path: str = f"{TOPIC}/partitions/0", **params: Any) -> list[Any]:
        return [m["value"] for m in (await self.get(f"{path}/messages", **params))["messages"]]


class Visit:
    """A GET whose client the test plays: it can hang up, or be slow to take what is sent."""

    def __init__(self, house: House, path: str, query: str = "", **headers: str) -> None:
        self.parts: list[bytes] = []
        self.status = 0
        self.taking = asyncio.Event()
        self.taking.set()
        self._gone = asyncio.Event()
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in headers.items()],
        }
        self.done = asyncio.get_running_loop().create_task(house.endpoint(scope, self._receive, self._send))

    def hang_up(self) -> None:
        self._gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    async def until(self, text: bytes) -> None:
        """Wait until `text` was sent."""
        async with asyncio.timeout(30):
            while text not in self.body:
                await asyncio.sleep(0)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self.taking.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not self._gone.is_set():
            self.parts.append(message.get("body", b""))


@asynccontextmanager
async def house(
    settings: BrokerSettings | None = None,
    limits: Limits | None = None,
    change: Callable[[Broker], None] | None = None,
) -> AsyncIterator[House]:
    """Open a house, and see that nothing is left running when it closes."""
    clock = ManualClock()
    broker = Broker(_Far(0), _Far(1000), WireFormat(), clock, settings)
    await broker.start()
    if change is not None:
        change(broker)
    context = ServerContext(broker, limits)
    endpoint = RestEndpoint(context)
    transport = httpx.ASGITransport(app=endpoint, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as client:
        yield House(broker, clock, context, client, endpoint)
    await endpoint.close()
    await broker.close()


class _Far(MemoryStore):
    """A memory store whose ledgers begin at a number of its own, so that two do not overlap."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._next_ledger = first
