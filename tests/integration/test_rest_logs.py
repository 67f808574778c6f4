"""Offsets, sizes and cursors of many topics in one request."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support.rest import TOPIC, RestServer

from penstock.model.names import TopicName

T = "persistent://public/default/t"
U = "persistent://public/default/u"


async def look(server: RestServer, **body: Any) -> Any:
    return await server.post("/topics/offsets", body)


async def test_offsets_of_many_topics() -> None:
    async with RestServer.open() as server:
        await server.broker.topics.create(TopicName.parse("u"), 2)
        await server.produce("a", "b")
        await server.clock.advance(1000)
        await server.produce("c")
        then = server.clock.now_ms()
        await server.produce("x", path="/topics/public/default/u/partitions/1")
        found = await look(
            server, topics=["t", "none"], patterns=[{"namespace": "public/default", "regex": "[u-z]"}]
        )
        assert found["changed"] is True
        assert found["missing"] == ["persistent://public/default/none"]
        t, u = found["topics"]
        assert (t["topic"], t["partitioned"], u["topic"], u["partitioned"]) == (T, False, U, True)
        assert [(log["earliest"], log["latest"]) for log in (*t["partitions"], *u["partitions"])] == [
            (0, 3),
            (0, 0),
            (0, 1),
        ]
        assert t["partitions"][0]["bytes"] > 0
        assert "at" not in t["partitions"][0]
        assert len({log["ledger"] for log in (*t["partitions"], *u["partitions"])}) == 3
        timed = await look(server, topics=["t"], publish_times=[0, then, then + 1])
        assert timed["topics"][0]["partitions"][0]["at"] == [0, 2, 3]


async def test_nothing_new_is_said_in_few_words() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        first = await look(server, topics=["t"])
        assert await look(server, topics=["t"], seen=first["seen"]) == {
            "seen": first["seen"],
            "changed": False,
            "topics": [],
            "missing": [],
        }
        await server.produce("b")
        second = await look(server, topics=["t"], seen=first["seen"])
        assert second["topics"][0]["partitions"][0]["latest"] == 2
        assert second["seen"] != first["seen"]


@pytest.mark.parametrize("what", ["grows", "appears", "gets partitions", "goes"])
async def test_waiting_for_news(what: str) -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        await server.broker.topics.create(TopicName.parse("u"), 1)
        body = {"patterns": [{"namespace": "public/default", "regex": ".*"}]}
        seen = (await look(server, **body))["seen"]
        waiting = server.broker.tasks.spawn(look(server, **body, seen=seen, wait_ms=60_000), "look")
        while not server.endpoint.services.polls.running:
            await asyncio.sleep(0)
        assert not waiting.done()
        match what:
            case "grows":
                await server.produce("b")
            case "appears":
                await server.broker.topics.create(TopicName.parse("v"), 0)
            case "gets partitions":
                await server.broker.topics.set_partitions(TopicName.parse("u"), 2)
            case "goes":
                await server.broker.topics.delete(TopicName.parse("u"), force=False)
        found = await asyncio.wait_for(waiting, 30)
        assert found["changed"]
        assert all(not topic.followers for topic in server.broker.topics.open_topics)


async def test_waiting_in_vain() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        seen = (await look(server, topics=["t"]))["seen"]
        waiting = server.broker.tasks.spawn(look(server, topics=["t"], seen=seen, wait_ms=500), "look")
        while not server.endpoint.services.polls.running:
            await asyncio.sleep(0)
        await server.clock.advance(499)
        assert not waiting.done()
        await server.clock.advance(1)
        assert (await asyncio.wait_for(waiting, 30))["changed"] is False


async def test_sizes() -> None:
    async with RestServer.open() as server:
        for _ in range(10):
            await server.produce(*("x" * 100 for _ in range(5)))
        topic = await server.broker.topics.get(TopicName.parse("t"), create=False)
        entries = await topic.read(0, 100)
        sizes = [len(entry.data) for entry in entries]
        whole = sum(sizes)

        async def size(offset: int, most: int | None) -> tuple[int, int, int]:
            ranges = [{"topic": "t", "partition": 0, "offset": offset, "bytes": most}]
            answer = await server.post("/topics/sizes", {"ranges": ranges})
            (found,) = answer["ranges"]
            return found["total"], found["bytes"], found["end"]

        assert await size(0, None) == (whole, whole, 50)
        assert await size(0, whole) == (whole, whole, 50)
        assert await size(0, sum(sizes[:3])) == (whole, sum(sizes[:3]), 15)
        assert await size(0, sum(sizes[:4]) - 1) == (whole, sum(sizes[:3]), 15)
        assert await size(0, whole - 1) == (whole, sum(sizes[:9]), 45)
        assert await size(0, 1) == (whole, sizes[0], 5), "an entry at least"
        assert await size(47, 1) == (sizes[9], sizes[9], 50)
        assert await size(22, sum(sizes[4:6])) == (sum(sizes[4:]), sum(sizes[4:6]), 30)
        assert await size(50, 100) == (0, 0, 50)


async def test_a_subscription_follows_by_offsets() -> None:
    async with RestServer.open() as server:
        await server.produce(*"0123456789")
        ledger = (await look(server, topics=["t"]))["topics"][0]["partitions"][0]["ledger"]

        async def mark(offset: int, **more: Any) -> Any:
            one = {"topic": "t", "partition": 0, "ledger": ledger, "offset": offset} | more.pop("mark", {})
            answer = await server.post("/topics/cursors", {"subscription": "s", "marks": [one], **more})
            return answer["marks"][0]

        assert (await mark(4))["offset"] == 4, "it is made where it is missing"
        cursor = (await server.get(f"{TOPIC}/subscription/s/cursor"))["cursor"]
        assert (cursor["mark_delete_offset"], cursor["backlog"]) == (3, 6)
        assert (await mark(7))["offset"] == 7
        assert (await mark(5))["offset"] == 7, "it does not move back"
        assert (await mark(5, exact=True))["offset"] == 5
        assert (await mark(10))["offset"] == 10
        for wrong, said in (
            ({"offset": 11}, "ends at 10, before 11"),
            ({"ledger": ledger + 1}, "made anew"),
            ({"partition": 1}, "no partition 1"),
            ({"topic": "none"}, "does not exist"),
        ):
            result = await mark(0, mark=wrong)
            assert result["offset"] is None
            assert said in result["error"]
            assert result["error_code"]
        topic = await server.broker.topics.get(TopicName.parse("t"), create=False)
        saved = await topic.store.load_cursors(topic.ledger)
        assert [(each.subscription, each.mark) for each in saved] == [("s", 10)]


async def test_a_shared_subscription_is_not_moved() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        await server.post(f"{TOPIC}/subscription/s", {"subscription_type": "Shared"})
        ledger = (await look(server, topics=["t"]))["topics"][0]["partitions"][0]["ledger"]
        one = {"topic": "t", "partition": 0, "ledger": ledger, "offset": 1}
        answer = await server.post("/topics/cursors", {"subscription": "s", "marks": [one]})
        assert "shared by consumers" in answer["marks"][0]["error"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("offsets", {"topics": ["a/b"]}, "invalid topic name"),
        ("offsets", {"patterns": [{"namespace": "public/default", "regex": "("}]}, "no regular expression"),
        ("offsets", {"wait_ms": 10**9}, "wait_ms is at most"),
        ("offsets", {"wait_ms": 1, "publish_times": [1]}, "exclude one another"),
        ("offsets", {"topic": ["t"]}, "topic"),
        ("sizes", {"ranges": [{"topic": "t", "partition": 0, "offset": -1}]}, "offset"),
        ("cursors", {"subscription": "s", "marks": []}, "marks"),
        (
            "cursors",
            {"subscription": "", "marks": [{"topic": "t", "partition": 0, "ledger": 0, "offset": 0}]},
            "subscr",
        ),
    ],
)
async def test_bad_requests(path: str, body: Any, said: str) -> None:
    async with RestServer.open() as server:
        response = await server.client.post(f"/topics/{path}", content=msgspec.json.encode(body))
        assert response.status_code in (400, 412, 422), response.text
        assert said in response.json()["message"]
        assert (await server.client.get(f"/topics/{path}")).status_code == 405


async def test_only_a_cluster_has_records() -> None:
    async with RestServer.open() as server:
        await server.produce("a")
        response = await server.client.post("/topics/records", content=b'{"topic": "t"}')
        assert (response.status_code, response.json()["error_code"]) == (501, 50101)
