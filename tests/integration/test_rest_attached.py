"""Consumer instances of a process that does not own the partition."""

import asyncio
from typing import Any, cast

import pytest
from tests.support.attached_broker import AttachedBroker
from tests.support.rest import TOPIC, RestServer, Visit

from penstock.broker.broker import Broker
from penstock.broker.subscription import Subscription
from penstock.model.names import TopicName
from penstock.testing.clock import settle

SUB = f"{TOPIC}/subscription/s"
NAME = TopicName.parse("t")


class Core:
    """The broker as it is before its consumers are attached ones."""

    def __init__(self, broker: Broker) -> None:
        self.subscribe = broker.subscribe
        self.subscriptions = broker.subscriptions
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


class Attached:
    """Consumers of a server from here on. `subscriptions` as its endpoints see them."""

    def __init__(self, server: RestServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = cast(Broker, Core(server.broker))
        self.broker = AttachedBroker(self.core)
        monkeypatch.setattr(server.broker, "subscribe", self.broker.subscribe)
        monkeypatch.setattr(server.broker, "subscriptions", self)

    async def of(self, name: TopicName, subscription: str) -> list[Subscription]:
        return [topic.subscriptions[subscription] for topic in self.broker.owner._topics.values()]

    async def leave_owner(self) -> None:
        """The owner disconnects all consumers, and there is no other one."""
        self.broker.owner.broker = None
        (source,) = await self.core.subscriptions.of(NAME, "s")
        for consumer in list(source.consumers):
            cast(Any, consumer).close()
        await settle()


async def test_a_request_that_waits_for_the_next_owner_keeps_its_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is it refused because another consumer of the process, which waits as well, goes away."""
    async with RestServer.open() as server:
        attached = Attached(server, monkeypatch)
        wanted = {"subscription_type": "Shared", "initial_position": "earliest", "consumer_timeout_ms": 1000}
        made = [await server.post(SUB, wanted) for _ in range(2)]
        paths = [f"{SUB}/consumer/{one['id']}" for one in made]
        await server.produce("a")
        (message,) = (await server.get(f"{paths[0]}/messages", max_messages=1))["messages"]
        await attached.leave_owner()
        body = {"messageIds": [message["messageId"]]}
        waiting = asyncio.get_running_loop().create_task(server.post(f"{paths[0]}/cursor", body))
        await settle()
        assert (await server.client.delete(paths[1])).status_code == 204
        for _ in range(4):
            await server.clock.advance(1000)
        assert not waiting.done()

        attached.broker.owner.broker = attached.core
        assert (await waiting)["messageIds"][0]["error_code"] is None
        (source,) = await attached.core.subscriptions.of(NAME, "s")
        await source.refresh()
        assert source.figures().backlog == 0
        await server.clock.advance(999)
        assert (await server.post(SUB, {"id": made[0]["id"]}))["id"] == made[0]["id"]
        await attached.broker.owner.tasks.close()


async def test_requests_without_an_id_do_not_keep_an_instance_that_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RestServer.open() as server:
        attached = Attached(server, monkeypatch)
        wanted = {"subscription_type": "Shared", "initial_position": "earliest", "consumer_timeout_ms": 1000}
        made = await server.post(SUB, wanted)
        path = f"{SUB}/consumer/{made['id']}/messages"
        await server.produce("a", "b")
        ids = [one["messageId"] for one in (await server.get(path, max_messages=2))["messages"]]
        await attached.leave_owner()
        waiting = asyncio.get_running_loop().create_task(
            server.post(f"{SUB}/cursor", {"messageIds": ids[:1]})
        )
        await settle()
        await server.clock.advance(1000)
        (late,) = (await server.post(f"{SUB}/cursor", {"messageIds": ids[1:]}))["messageIds"]
        assert "is with no consumer" in late["error"]
        attached.broker.owner.broker = attached.core
        assert (await waiting)["messageIds"][0]["error_code"] is None
        await server.clock.advance(1000)
        assert (await server.client.get(path)).status_code == 404
        await attached.broker.owner.tasks.close()


async def test_an_instance_that_waits_for_messages_acknowledges_for_requests_without_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RestServer.open() as server:
        attached = Attached(server, monkeypatch)
        wanted = {"initial_position": "earliest", "consumer_timeout_ms": 1000}
        path = f"{SUB}/consumer/{(await server.post(SUB, wanted))['id']}/messages"
        await server.produce("a")
        (message,) = (await server.get(path, max_messages=1))["messages"]
        visit = Visit(server, path, "timeout=5000&max_messages=1")
        await settle()
        for _ in range(3):
            await server.clock.advance(1000)
        answer = await server.post(f"{SUB}/cursor", {"messageIds": [message["messageId"]]})
        assert answer["messageIds"][0]["error_code"] is None
        await server.produce("b")
        await visit.done
        assert b'"b"' in visit.body
        await attached.broker.owner.tasks.close()
