"""A peer that leaves as soon as it came: its disconnect is there before the connection's tasks have begun."""

import asyncio
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench
from tests.unit.protocols.websocket.connections import FakeConnection

from penstock.protocols.context import ServerContext
from penstock.protocols.websocket.endpoint import WebSocketEndpoint
from penstock.protocols.websocket.socket import CONNECTION_KEY, Sockets


@pytest.mark.parametrize("role", ["producer", "consumer", "reader"])
async def test_nothing_is_left_of_it(role: str) -> None:
    async with bench() as made:
        sockets = Sockets()
        endpoint = WebSocketEndpoint(ServerContext(made.broker), sockets)
        path = f"/ws/v2/{role}/persistent/public/default/t" + ("/s" if role == "consumer" else "")
        connection = FakeConnection()
        scope: dict[str, Any] = {"type": "websocket", "path": path, "query_string": b"", "headers": []}
        scope["state"] = {CONNECTION_KEY: connection}

        async def never(*_: Any) -> Any:
            raise AssertionError("an accepted socket is used by its connection")

        await asyncio.wait_for(endpoint(scope, never, never), 30)
        assert connection.accepted
        topic = await made.broker.topics.get(TOPIC)
        assert not topic.producers
        assert all(not subscription.consumers for subscription in topic.subscriptions.values())
        assert not len(sockets)
