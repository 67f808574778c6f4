import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions

SUB = f"{ADMIN}/t/subscription/s"


async def backlog(server: AdminServer, topic: str = "t") -> int:
    found = await server.get(f"{ADMIN}/{topic}/stats")
    return int(found["subscriptions"]["s"]["msgBacklog"])


async def test_a_subscription_is_created_listed_and_deleted() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", *"abc")
        await server.put(SUB)
        assert await backlog(server) == 0
        await server.put(SUB, status=409)
        assert await server.get(f"{ADMIN}/t/subscriptions") == ["s"]
        await server.delete(SUB)
        await server.delete(SUB, 404)
        assert await server.get(f"{ADMIN}/t/subscriptions") == []
        await server.get(f"{ADMIN}/nothing/subscriptions", 404)


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ("earliest", 6),
        ("latest", 0),
        ({"ledgerId": -1, "entryId": -1}, 6),
        ({"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}, 0),
        ({"ledgerId": 0, "entryId": 1}, 3),
        ({"ledgerId": 0, "entryId": 1, "isExcluded": True}, 0),
        ({"ledgerId": 0, "entryId": 0, "excluded": True}, 3),
        ({"ledgerId": 0, "entryId": 0, "batchIndex": 1, "excluded": True}, 4),
        ({"ledgerId": 0, "entryId": 0, "excluded": False}, 6),
        ({"ledgerId": 0, "entryId": 0, "batchIndex": 1}, 5),
        ({"ledgerId": 0, "entryId": 0, "batchIndex": 1, "isExcluded": True}, 4),
        (str(MessageId(0, 0)), 3),
    ],
)
async def test_where_it_begins_and_is_reset_to(place: object, left: int) -> None:
    async with AdminServer.open() as server:
        await server.produce("t", *"abc")
        await server.produce("t", *"def")
        await server.put(SUB, place)
        assert await backlog(server) == left
        await server.post(f"{SUB}/skip_all")
        assert await backlog(server) == 0
        await server.post(f"{SUB}/resetcursor", place)
        assert await backlog(server) == left


@pytest.mark.parametrize("place", ["nonsense", {"ledgerId": "x"}, 5, [1], {"ledgerId": 77, "entryId": 0}])
async def test_a_place_that_cannot_be_changes_nothing(place: object) -> None:
    async with AdminServer.open() as server:
        await server.produce("t", *"abc")
        await server.put(SUB, place, 400)
        assert await server.get(f"{ADMIN}/t/subscriptions") == []
        await server.put(SUB, "earliest")
        await server.post(f"{SUB}/resetcursor", place, 400)
        assert await backlog(server) == 3


async def test_an_id_on_a_partitioned_topic_is_refused_before_anything_changes() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 2)
        ids = await server.produce("p", *"abcd")
        await server.put(f"{ADMIN}/p/subscription/s", ids[0], 400)
        assert await server.get(f"{ADMIN}/p/subscriptions") == []
        await server.put(f"{ADMIN}/p/subscription/s", "earliest")
        assert await backlog(server, "p") == 4
        await server.post(f"{ADMIN}/p/subscription/s/skip/1", status=405)
        await server.post(f"{ADMIN}/p/subscription/s/skip_all")
        assert await backlog(server, "p") == 0


async def test_skipping_passes_over_what_is_acknowledged() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", *"abcdef")
        await server.put(SUB, "earliest")
        [subscription] = await server.broker.subscriptions.of(TopicName.parse("t"), "s")
        subscription.cursor.add(1, 0b1)
        assert await backlog(server) == 5
        await server.post(f"{SUB}/skip/2")  # a and c
        assert await backlog(server) == 3
        await server.post(f"{SUB}/skip/100")
        assert await backlog(server) == 0
        await server.post(f"{SUB}/skip/-1", status=400)
        await server.post(f"{SUB}/skip/x", status=400)


async def test_reset_to_a_time_and_expiry() -> None:
    async with AdminServer.open() as server:
        await server.produce("t", *"ab")
        server.clock.turn(10_000)
        now = server.clock.now_ms()
        await server.produce("t", *"cd")
        await server.put(SUB, "earliest")
        await server.post(f"{SUB}/expireMessages/5")
        assert await backlog(server) == 2
        await server.post(f"{SUB}/resetcursor/0")
        assert await backlog(server) == 4
        await server.post(f"{SUB}/resetcursor/{now}")
        assert await backlog(server) == 2
        await server.post(f"{SUB}/resetcursor/yesterday", status=400)


async def test_looking_into_the_backlog_takes_nothing_from_it() -> None:
    async with AdminServer.open() as server:
        messages = [{"value": "a", "key": "k", "properties": {"x": "y"}}, {"value": "b"}]
        await server.post("/topics/public/default/t", {"messages": messages}, 200)
        await server.put(SUB, "earliest")
        first = await server.client.get(f"{SUB}/position/1")
        assert first.content == b"a"
        assert first.headers["x-pulsar-property-x"] == "y"
        assert first.headers["x-pulsar-partition-key"] == "k"
        assert first.headers["x-pulsar-message-id"].endswith(":0:0")
        assert (await server.client.get(f"{SUB}/position/2")).content == b"b"
        await server.get(f"{SUB}/position/3", 404)
        await server.get(f"{SUB}/position/0", 400)
        assert await backlog(server) == 2


async def test_a_subscription_with_consumers_is_deleted_only_by_force() -> None:
    async with AdminServer.open() as server:
        consumer = await server.broker.subscribe([TopicName.parse("t")], "s", ConsumerOptions(name="c"))
        assert (await server.delete(SUB, 409))["error_code"] == 40902
        described = (await server.get(f"{ADMIN}/t/stats"))["subscriptions"]["s"]
        assert described["type"] == "Exclusive"
        assert described["consumers"][0]["consumerName"] == "c"
        assert described["activeConsumerName"] == "c"
        await server.delete(SUB, force="true")
        assert consumer.closed


async def test_new_partitions_have_the_subscriptions_of_the_old_ones() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/p/partitions", 1)
        await server.put(f"{ADMIN}/p/subscription/s", "latest")
        await server.post(f"{ADMIN}/p/partitions", 3)
        await server.produce("p", *"abcdef")
        assert await backlog(server, "p") == 6
