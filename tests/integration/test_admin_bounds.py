"""Policies that bound what goes into a topic and out of it, by what they do."""

import asyncio
from typing import Any

import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.broker.settings import BrokerSettings
from penstock.engines.subscription import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import settle

SPACE = "/admin/v2/namespaces/public/default"
CHECK = BrokerSettings().keep_check_ms


async def _subscribe(server: AdminServer, topic: str = "t", name: str = "s", **options: Any) -> Consumer:
    options.setdefault("type", SubscriptionType.SHARED)
    return await server.broker.subscribe([TopicName.parse(topic)], name, ConsumerOptions(name="c", **options))


def _taken(consumer: Consumer) -> int:
    return sum(delivery.count for delivery in consumer.take())


@pytest.mark.parametrize(
    ("namespace", "topic", "value"),
    [
        ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", 7),
        ("publishRate", "publishRate", {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}),
        (
            "dispatchRate",
            "dispatchRate",
            {
                "dispatchThrottlingRateInMsg": 5,
                "dispatchThrottlingRateInByte": 100,
                "relativeToPublishRate": False,
                "ratePeriodInSecond": 2,
            },
        ),
        ("autoSubscriptionCreation", "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
        ("subscriptionTypesEnabled", "subscriptionTypesEnabled", ["Shared", "Key_Shared"]),
    ],
)
async def test_a_bound_is_of_the_namespace_or_of_the_topic(namespace: str, topic: str, value: Any) -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        before = await server.get(f"{ADMIN}/t/{topic}", applied="true")
        assert await server.get(f"{SPACE}/{namespace}") is None
        await server.post(f"{SPACE}/{namespace}", value)
        assert await server.get(f"{SPACE}/{namespace}") == value
        assert await server.get(f"{ADMIN}/t/{topic}") is None
        assert await server.get(f"{ADMIN}/t/{topic}", applied="true") == value
        await server.delete(f"{SPACE}/{namespace}")
        await server.post(f"{ADMIN}/t/{topic}", value)
        assert await server.get(f"{ADMIN}/t/{topic}") == value
        await server.delete(f"{ADMIN}/t/{topic}")
        assert await server.get(f"{ADMIN}/t/{topic}", applied="true") == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("maxUnackedMessagesPerConsumer", -1),
        ("publishRate", {"publishThrottlingRateInMsg": 1 << 53}),
        ("publishRate", 5),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": -1}),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 0}),
        ("dispatchRate", {"nope": 5}),
        ("subscriptionDispatchRate", {"nope": 5}),
        ("publishRate", {"nope": 5}),
        ("subscriptionTypesEnabled", ["Shared", "Sometimes"]),
        ("autoSubscriptionCreation", {}),
        ("autoTopicCreation", {"allowAutoTopicCreation": True}),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
        ),
        (
            "autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 2},
        ),
    ],
)
async def test_what_cannot_be_is_refused(path: str, body: Any) -> None:
    async with AdminServer.open() as server:
        before = await server.get(SPACE)
        assert (await server.post(f"{SPACE}/{path}", body, 400))["error_code"] == 40001
        assert await server.get(SPACE) == before


async def test_a_document_of_policies_decides_them_all() -> None:
    async with AdminServer.open() as server:
        rate = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1}
        shown = {**rate, "relativeToPublishRate": False, "ratePeriodInSecond": 1}
        document = {
            "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": "5"}},
            "topicDispatchRate": {"standalone": rate},
            "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
            "max_unacked_messages_per_consumer": 9,
            "subscription_types_enabled": ["Shared"],
            "compaction_threshold": 1000,
        }
        await server.put("/admin/v2/tenants/acme")
        await server.put("/admin/v2/namespaces/acme/shop", document)
        found = await server.get("/admin/v2/namespaces/acme/shop")
        assert found["topicDispatchRate"] == {"standalone": shown}
        assert found["subscriptionDispatchRate"] == {}
        assert found["publishMaxMessageRate"]["standalone"]["publishThrottlingRateInMsg"] == 5
        assert found["autoTopicCreationOverride"]["allowAutoTopicCreation"] is False
        assert found["max_unacked_messages_per_consumer"] == 9
        assert found["subscription_types_enabled"] == ["Shared"]
        assert found["compaction_threshold"] == 1000
        assert found["bundles"]["numBundles"] == 1


async def test_a_consumer_gets_no_more_than_it_may_leave_unacknowledged() -> None:
    async with AdminServer.open() as server:
        await server.post(f"{SPACE}/maxUnackedMessagesPerConsumer", 3)
        consumer = await _subscribe(server)
        await server.produce("t", *"abcdefghij")
        await settle()
        assert _taken(consumer) == 3
        (shown,) = (await server.get(f"{ADMIN}/t/stats"))["subscriptions"]["s"]["consumers"]
        assert shown["blockedConsumerOnUnackedMsgs"] is True
        await server.post(f"{ADMIN}/t/maxUnackedMessagesOnConsumer", 5)
        await settle()
        assert _taken(consumer) == 2
        await server.post(f"{ADMIN}/t/maxUnackedMessagesOnConsumer", 0)  # without bound
        await settle()
        assert _taken(consumer) == 5


async def test_publishing_waits_for_its_rate_in_order() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/publishRate", {"publishThrottlingRateInMsg": 2})
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(server.produce("t", f"{n}")) for n in range(6)]
            await settle(200)
            done = [sum(task.done() for task in asked)]
            for _ in range(2):
                await server.clock.advance(1001)
                await settle(200)
                done.append(sum(task.done() for task in asked))
            assert done == [2, 4, 6]
        found = await server.get("/topics/public/default/t/partitions/0/messages", timeout=0)
        assert [message["value"] for message in found["messages"]] == list("012345")


async def test_a_rate_in_bytes_lets_one_message_overdraw() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/publishRate", {"publishThrottlingRateInByte": 1000})
        await server.produce("t", "x" * 3000)
        async with asyncio.TaskGroup() as group:
            late = group.create_task(server.produce("t", "y"))
            for _ in range(2):
                await server.clock.advance(1000)
                assert not late.done()
            await server.clock.advance(1001)


async def test_publishing_beyond_the_rate_fails_after_a_while() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/publishRate", {"publishThrottlingRateInByte": 10})
        await server.produce("t", "x" * 1000)
        answers: list[Any] = []

        async def publish() -> None:
            answer = await server.client.post("/topics/public/default/t", json={"messages": [{"value": "a"}]})
            answers.append(answer.json())

        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(publish())
            await settle(100)
            for _ in range(2):
                await server.clock.advance(BrokerSettings().quota_hold_ms // 2)
                await settle(100)
        for answer in answers:
            assert "publishRate" in answer["message"]
            assert answer["error_code"] == 42901
        assert (await server.get(f"{ADMIN}/t/stats"))["messages"] == 1


async def test_who_waits_goes_on_once_the_rate_is_gone() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/publishRate", {"publishThrottlingRateInMsg": 1})
        await server.produce("t", "a")
        async with asyncio.TaskGroup() as group:
            late = group.create_task(server.produce("t", "b"))
            await settle(100)
            assert not late.done()
            await server.delete(f"{ADMIN}/t/publishRate")


async def test_a_server_that_drains_holds_no_publisher() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/publishRate", {"publishThrottlingRateInMsg": 1})
        await server.produce("t", "a")
        producer = await server.broker.producer(TopicName.parse("t"))

        async def publish() -> None:
            with pytest.raises(PenstockError) as refused:
                await producer.publish_plain([b"b"], None)
            assert refused.value.kind is ErrorKind.UNAVAILABLE

        async with asyncio.TaskGroup() as group:
            late = group.create_task(publish())
            await settle()
            assert not late.done()
            server.broker.drain()


@pytest.mark.parametrize("path", ["dispatchRate", "subscriptionDispatchRate"])
async def test_delivery_keeps_to_its_rate(path: str) -> None:
    async with AdminServer.open() as server:
        for value in "abcdef":
            await server.produce("t", value)
        await server.post(f"{ADMIN}/t/{path}", {"dispatchThrottlingRateInMsg": 2})
        consumers = [await _subscribe(server, name=name) for name in ("s", "r")]
        for one in consumers:
            await one.seek(0)
        await settle()
        got = [[_taken(one) for one in consumers]]
        for _ in range(2):
            await server.clock.advance(1001)
            got.append([_taken(one) for one in consumers])
        if path == "subscriptionDispatchRate":
            assert got == [[2, 2]] * 3
        else:
            assert [sum(both) for both in got] == [2, 2, 2]
        await server.delete(f"{ADMIN}/t/{path}")
        await settle()
        assert sum(_taken(one) for one in consumers) + sum(map(sum, got)) == 12


async def test_a_consumer_creates_no_subscription_where_it_may_not() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        await server.post(f"{ADMIN}/t/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
        with pytest.raises(PenstockError) as refused:
            await _subscribe(server)
        assert refused.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        assert await server.get(f"{ADMIN}/t/subscriptions") == []
        await _subscribe(server, name="reader", durable=False)
        await server.put(f"{ADMIN}/t/subscription/s", "earliest")
        await _subscribe(server)


async def test_only_types_that_are_enabled_can_be_used() -> None:
    async with AdminServer.open() as server:
        await server.post(f"{SPACE}/subscriptionTypesEnabled", ["Shared"])
        with pytest.raises(PenstockError) as refused:
            await _subscribe(server, type=SubscriptionType.EXCLUSIVE)
        assert refused.value.kind is ErrorKind.BAD_PARAMETER
        assert "Exclusive" in refused.value.message
        assert await server.get(f"{ADMIN}/t/subscriptions") == []
        await _subscribe(server)


async def test_topics_are_created_as_their_namespace_says() -> None:
    async with AdminServer.open() as server:
        made = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
        await server.post(f"{SPACE}/autoTopicCreation", made)
        assert await server.get(f"{SPACE}/autoTopicCreation") == made
        await server.produce("t", "a")
        assert await server.get(f"{ADMIN}/t/partitions") == {"partitions": 2}
        await server.post(f"{SPACE}/autoTopicCreation", {"allowAutoTopicCreation": False})
        response = await server.client.post("/topics/public/default/u", json={"messages": [{"value": "a"}]})
        assert response.json()["error_code"] == 40401
        await server.get(f"{ADMIN}/u/partitions", 404, checkAllowAutoCreation="true")
        await server.get("/lookup/v2/topic/persistent/public/default/u", 404)
        with pytest.raises(PenstockError):
            await _subscribe(server, topic="u")
        await server.delete(f"{SPACE}/autoTopicCreation")
        await server.produce("u", "a")
        assert await server.get(f"{ADMIN}/u/partitions") == {"partitions": 0}


async def test_a_namespace_creates_topics_where_the_server_does_not() -> None:
    async with AdminServer.open(BrokerSettings(auto_create_topics=False)) as server:
        await server.post(
            f"{SPACE}/autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "non-partitioned"}
        )
        await server.produce("t", "a")


async def test_a_topic_is_compacted_once_it_has_grown() -> None:
    async with AdminServer.open() as server:
        assert await server.get(f"{SPACE}/compactionThreshold") is None
        await server.put(f"{SPACE}/compactionThreshold", 2000)
        assert await server.get(f"{ADMIN}/t/compactionThreshold", 404) is not None
        body = {"messages": [{"key": "k", "value": "x" * 500}]}
        for _ in range(3):
            await server.post("/topics/public/default/t", body, 200)
        await server.clock.advance(2 * CHECK)
        assert (await server.get(f"{ADMIN}/t/compaction"))["status"] == "NOT_RUN"
        for again in range(2):  # and once more when it has grown by as much again
            for _ in range(4):
                await server.post("/topics/public/default/t", body, 200)
            for _ in range(3):
                await server.clock.advance(CHECK)
                await settle(100)
            log = await server.broker.topics.get(TopicName.parse("t"))
            assert (await server.get(f"{ADMIN}/t/compaction"))["status"] == "SUCCESS"
            assert log.compaction.kept is not None
            assert log.compaction.kept.horizon == 7 + 4 * again
        await server.post(f"{ADMIN}/t/compactionThreshold", 0)
        assert await server.get(f"{ADMIN}/t/compactionThreshold") == 0


async def test_numbers_may_be_texts_within_an_object() -> None:
    async with AdminServer.open() as server:
        await server.put(f"{ADMIN}/t")
        quota = {"limitSize": "1000", "limitTime": "-1", "policy": "producer_exception"}
        await server.post(f"{ADMIN}/t/backlogQuota", quota)
        found = await server.get(f"{ADMIN}/t/backlogQuotaMap")
        assert found["destination_storage"]["limitSize"] == 1000
        await server.post(f"{ADMIN}/t/backlogQuota", {**quota, "limitSize": "many"}, 400)
