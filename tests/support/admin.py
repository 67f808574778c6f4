"""A server, and the requests of an administrator."""

from typing import Any

from tests.support.server import RunningServer

ADMIN = "/admin/v2/persistent/public/default"


class AdminServer(RunningServer):
    """Requests whose status is checked: 204 for those that change something, unless the test says otherwise."""

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
