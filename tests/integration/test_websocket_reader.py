"""The reader endpoint over a real socket."""

from typing import Any
from urllib.parse import quote

import pytest
from tests.support.waiting import until_async
from tests.support.websocket import PRODUCER, READER, WebSocketServer, text

from penstock.model.message_id import MessageId
from penstock.model.names import TopicName

TOPIC = TopicName.parse("t")


async def publish(server: WebSocketServer, *payloads: str, **fields: Any) -> list[str]:
    producer = await server.connect(f"{PRODUCER}/t")
    return await producer.publish(*payloads, **fields)


async def test_from_the_earliest_from_the_latest_and_after_an_id() -> None:
    async with WebSocketServer.open() as server:
        ids = await publish(server, *"abc")
        latest = await server.connect(f"{READER}/t")
        earliest = await server.connect(f"{READER}/t?messageId=earliest")
        after = await server.connect(f"{READER}/t/?messageId={ids[0].replace('=', '%3D')}")
        await publish(server, "d")
        assert await earliest.take(4) == list("abcd")
        assert await after.take(3) == list("bcd")
        assert await latest.take(1) == ["d"]


async def test_every_frame_is_one_credit() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, *"abcdef")
        reading = await server.connect(f"{READER}/t?messageId=earliest&receiverQueueSize=2")
        assert [text(await reading.receive()) for _ in range(2)] == ["a", "b"]
        await reading.nothing_more()
        await reading.send('"anything that is JSON"')
        assert text(await reading.receive()) == "c"
        await reading.send({"messageId": "nonsense"})
        assert text(await reading.receive()) == "d"
        await reading.nothing_more()
        for _ in range(20):
            await reading.send({})
        assert [text(await reading.receive()) for _ in range(2)] == ["e", "f"]


async def test_credit_is_not_saved_up() -> None:
    async with WebSocketServer.open() as server:
        reading = await server.connect(f"{READER}/t?receiverQueueSize=1")
        for _ in range(20):
            await reading.send({})
        await publish(server, *"abc")
        assert text(await reading.receive()) == "a"
        await reading.nothing_more()


async def test_end_of_topic() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        await reading.take(1)
        assert await reading.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}
        await server.broker.topics.terminate(TOPIC)
        assert await reading.ask({"type": "isEndOfTopic"}) == {"endOfTopic": True}


async def test_what_is_no_json_closes() -> None:
    async with WebSocketServer.open() as server:
        reading = await server.connect(f"{READER}/t")
        await reading.send("{")
        assert await reading.closed() == (4003, "Failed to de-serialize from JSON")


async def test_all_partitions_are_read() -> None:
    async with WebSocketServer.open() as server:
        await server.broker.topics.create(TOPIC, 3)
        producer = await server.connect(f"{PRODUCER}/t?messageRoutingMode=RoundRobinPartition")
        await producer.publish(*"abcdef")
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        assert sorted(await reading.take(6)) == list("abcdef")


async def test_an_id_of_one_partition_says_nothing_of_the_others() -> None:
    async with WebSocketServer.open() as server:
        await server.broker.topics.create(TOPIC, 2)
        producer = await server.connect(f"{PRODUCER}/t?messageRoutingMode=RoundRobinPartition")
        ids = await producer.publish(*"abcdef")
        reading = await server.connect(f"{READER}/t?messageId={quote(ids[2])}")
        assert sorted(await reading.take(4)) == list("bdef")
        await producer.publish("g")
        assert await reading.take(1) == ["g"]
        last = await server.connect(
            f"{READER}/t-partition-{MessageId.parse(ids[2]).partition}?messageId={quote(ids[2])}"
        )
        assert (await last.take(1))[0] == "e"


async def test_nothing_is_left_of_a_reader() -> None:
    async with WebSocketServer.open() as server:
        await publish(server, "a")
        reading = await server.connect(f"{READER}/t?readerName=r&messageId=earliest")
        await reading.receive()
        topic = await server.broker.topics.get(TOPIC)
        assert len(topic.subscriptions) == 1
        await reading.close()
        await until_async(lambda: len(server.sockets) == 1)
        assert topic.subscriptions == {}
        assert await topic.store.load_cursors(topic.ledger) == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("messageId=nonsense", "invalid message id"),
        ("messageId=CGMQAA%3D%3D", "is not of"),
        ("receiverQueueSize=x", "For input string"),
    ],
)
async def test_whatever_fails_is_500(query: str, text: str) -> None:
    async with WebSocketServer.open() as server:
        status, body = await server.upgrade(f"{READER}/t?{query}")
        assert status == 500
        assert body.startswith("Failed to create reader: ")
        assert text in body
