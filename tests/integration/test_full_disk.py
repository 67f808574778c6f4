"""A disk without room: publishing is refused with the reason, reading and acknowledging go on, and publishing
resumes when there is room."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.support.websocket import CONSUMER, PRODUCER, WebSocketServer, base64, text

from penstock.engines.sqlite import SqliteStore

TOPIC = "/topics/public/default/t"
LARGE = "x" * 100_000


class FullServer(WebSocketServer):
    """A server over a store whose disk the test fills."""

    async def publish(self, value: str) -> httpx.Response:
        return await self.client.post(TOPIC, json={"messages": [{"value": value}]})

    async def fill(self) -> int:
        """Let the disk be full, and publish until it is felt: how many messages were stored."""
        await self.store.limit_size(1)
        stored = 0
        while (await self.publish(LARGE)).status_code == 200:
            stored += 1
        return stored

    async def values(self) -> list[Any]:
        answer = await self.client.get(f"{TOPIC}/partitions/0/messages")
        assert answer.status_code == 200
        return [message["value"] for message in answer.json()["messages"]]


@asynccontextmanager
async def full_server(folder: Path) -> AsyncIterator[FullServer]:
    async with FullServer.open(store=SqliteStore(folder)) as server:
        assert (await server.publish("first")).status_code == 200
        yield server


async def test_over_rest(tmp_path: Path) -> None:
    async with full_server(tmp_path) as server:
        stored = await server.fill()
        refused = await server.publish(LARGE)
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50302)
        assert "room" in refused.json()["message"] or "full" in refused.json()["message"]
        assert await server.values() == ["first"] + [LARGE] * stored
        await server.store.limit_size(None)
        assert (await server.publish("last")).status_code == 200
        assert await server.values() == ["first", *[LARGE] * stored, "last"]


async def test_acknowledging_goes_on(tmp_path: Path) -> None:
    async with full_server(tmp_path) as server:
        path = f"{TOPIC}/subscription/s"
        created = await server.client.post(path, json={"initial_position": "earliest"})
        await server.fill()
        fetched = await server.client.get(f"{path}/consumer/{created.json()['id']}/messages?max_messages=1")
        (message,) = fetched.json()["messages"]
        done = await server.client.post(f"{path}/cursor", json={"messageIds": [message["messageId"]]})
        assert done.json()["messageIds"] == [
            {"messageId": message["messageId"], "error_code": None, "error": None}
        ]


async def test_over_websocket(tmp_path: Path) -> None:
    async with full_server(tmp_path) as server:
        producer = await server.connect(f"{PRODUCER}/t")
        consumer = await server.connect(f"{CONSUMER}/t/s?subscriptionInitialPosition=Earliest")
        assert text(await consumer.receive()) == "first"
        stored = await server.fill()
        refused = await producer.ask({"payload": base64(LARGE), "context": "1"})
        assert (refused["result"], refused["context"]) == ("send-error:8", "1")
        assert [text(await consumer.receive()) for _ in range(stored)] == [LARGE] * stored
        await server.store.limit_size(None)
        answer = await producer.ask({"payload": base64("last"), "context": "2"})
        assert (answer["result"], answer["context"]) == ("ok", "2")
        assert text(await consumer.receive()) == "last"


async def test_with_deduplication_what_was_refused_is_new_when_it_comes_again(tmp_path: Path) -> None:
    async with full_server(tmp_path) as server:
        path = "/admin/v2/namespaces/public/default/deduplication"
        assert (await server.client.post(path, json=True)).status_code == 204
        producer = await server.connect(f"{PRODUCER}/t?producerName=p")
        await server.fill()
        frame = {"payload": base64(LARGE), "sequenceId": 5}
        assert (await producer.ask(frame))["result"] == "send-error:8"
        await server.store.limit_size(None)
        stored, repeated = await producer.ask(frame), await producer.ask(frame)
        assert stored["result"] == "ok"
        assert stored["messageId"] == repeated["messageId"]
