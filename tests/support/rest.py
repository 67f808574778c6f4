"""A server, and requests to its REST endpoint."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import msgspec

from penstock.protocols.rest.endpoint import RestEndpoint
from penstock.server.dispatch import AsgiExchange
from tests.support.server import RunningServer
from tests.support.waiting import until_async

TOPIC = "/topics/public/default/t"


class RestServer(RunningServer):
    """Requests and their JSON."""

    @property
    def endpoint(self) -> RestEndpoint:
        return self.app.rest

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

    def __init__(self, server: RestServer, path: str, query: str = "", **headers: str) -> None:
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
        self.done = asyncio.get_running_loop().create_task(
            server.endpoint(AsgiExchange(scope, self._receive, self._send))
        )

    def hang_up(self) -> None:
        self._gone.set()

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    async def until(self, text: bytes) -> None:
        """Wait until `text` was sent."""
        await until_async(lambda: text in self.body)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self.taking.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not self._gone.is_set():
            self.parts.append(message.get("body", b""))
