"""Policies under Pulsar's paths, and what the endpoints answer by them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.admin import ADMIN, AdminServer

from penstock.broker.settings import BrokerSettings

pytestmark = pytest.mark.anyio

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = f"{ADMIN}/t"
CHECK = BrokerSettings().keep_check_ms


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[AdminServer]:
    async with AdminServer.open() as made:
        await made.put(TOPIC)
        yield made


RETENTION = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}


async def test_retention(server: AdminServer) -> None:
    assert await server.get(f"{NAMESPACE}/retention") is None
    await server.post(f"{NAMESPACE}/retention", RETENTION)
    assert await server.get(f"{NAMESPACE}/retention") == RETENTION
    assert await server.get(f"{TOPIC}/retention") is None
    assert await server.get(f"{TOPIC}/retention", applied="true") == RETENTION

    own = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5}
    await server.post(f"{TOPIC}/retention", own)
    assert await server.get(f"{TOPIC}/retention") == own
    assert (await server.get(TOPIC))["retention"] == own
    await server.delete(f"{TOPIC}/retention")
    assert await server.get(f"{TOPIC}/retention", applied="true") == RETENTION
    await server.delete(f"{NAMESPACE}/retention")
    nothing = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert await server.get(f"{TOPIC}/retention", applied="true") == nothing


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("retention", {"retentionTimeInMinutes": -2, "retentionSizeInMB": 1}),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 10}),
        ("retention", {"retentionTimeInMinutes": 10}),
        ("retention", None),
        ("messageTTL", -1),
        ("messageTTL", "soon"),
        ("maxConsumersPerSubscription", -1),
        ("maxConsumersPerSubscription", 1 << 31),
        ("maxSubscriptionsPerTopic", True),
        ("backlogQuota", {"limitSize": 1}),
        ("backlogQuota", {"limitSize": 1, "policy": "drop_everything"}),
        ("backlogQuota", {"limitSize": -7, "policy": "producer_exception"}),
        ("backlogQuota?backlogQuotaType=messages", {"limitSize": 1, "policy": "producer_exception"}),
    ],
)
async def test_what_cannot_be_changes_nothing(server: AdminServer, path: str, body: Any) -> None:
    before = await server.get(NAMESPACE)
    for where in (NAMESPACE, TOPIC):
        answer = await server.ask("POST", f"{where}/{path}", body, 400)
        assert answer["error_code"] == 40001
    assert await server.get(NAMESPACE) == before
    assert await server.get(f"{TOPIC}/backlogQuotaMap") == {}


@pytest.mark.parametrize(
    ("namespace", "topic", "applied"),
    [
        ("messageTTL", "messageTTL", 0),
        ("maxProducersPerTopic", "maxProducers", 10_000),
        ("maxConsumersPerTopic", "maxConsumers", 10_000),
        ("maxConsumersPerSubscription", "maxConsumersPerSubscription", 10_000),
        ("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", 10_000),
    ],
)
async def test_numbers(server: AdminServer, namespace: str, topic: str, applied: int) -> None:
    at, of = f"{NAMESPACE}/{namespace}", f"{TOPIC}/{topic}"
    assert await server.get(at) is None
    assert await server.get(of, applied="true") == applied
    await server.post(at, 7)
    assert (await server.get(at), await server.get(of), await server.get(of, applied="true")) == (
        7,
        None,
        7,
    )
    await server.post(of, 0)
    assert await server.get(of, applied="true") == 0
    await server.delete(of)
    await server.delete(at)
    assert (await server.get(at), await server.get(of), await server.get(of, applied="true")) == (
        None,
        None,
        applied,
    )


async def test_a_topics_expiry_may_come_in_the_query(server: AdminServer) -> None:
    await server.post(f"{TOPIC}/messageTTL", messageTTL="90")
    assert await server.get(f"{TOPIC}/messageTTL") == 90
    await server.post(f"{TOPIC}/messageTTL", None, 400, messageTTL="-1")


async def test_deduplication_of_a_topic(server: AdminServer) -> None:
    assert await server.get(f"{TOPIC}/deduplicationEnabled", applied="true") is False
    await server.post(f"{TOPIC}/deduplicationEnabled", True)
    assert (await server.get(f"{TOPIC}/stats"))["deduplicationStatus"] == "Enabled"
    await server.delete(f"{TOPIC}/deduplicationEnabled")
    assert (await server.get(f"{TOPIC}/stats"))["deduplicationStatus"] == "Disabled"


async def test_backlog_quotas(server: AdminServer) -> None:
    size = {"limitSize": 1000, "policy": "producer_exception"}
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    await server.post(f"{NAMESPACE}/backlogQuota", size)
    await server.post(f"{TOPIC}/backlogQuota", age, backlogQuotaType="message_age")
    shown_size = {"limit": 1000, "limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    shown_age = {"limit": -1, "limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}
    assert await server.get(f"{NAMESPACE}/backlogQuotaMap") == {"destination_storage": shown_size}
    assert await server.get(f"{TOPIC}/backlogQuotaMap") == {"message_age": shown_age}
    both = {"destination_storage": shown_size, "message_age": shown_age}
    assert await server.get(f"{TOPIC}/backlogQuotaMap", applied="true") == both
    stats = await server.get(f"{TOPIC}/stats")
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (1000, 60)
    await server.delete(f"{TOPIC}/backlogQuota", backlogQuotaType="message_age")
    await server.delete(f"{NAMESPACE}/backlogQuota")
    assert await server.get(f"{TOPIC}/backlogQuotaMap") == {}
    assert await server.get(f"{NAMESPACE}/backlogQuotaMap") == {}


async def test_a_namespace_is_created_with_policies_as_it_is_described(server: AdminServer) -> None:
    await server.post(f"{NAMESPACE}/retention", RETENTION)
    await server.post(f"{NAMESPACE}/maxTopicsPerNamespace", 12)
    await server.post(f"{NAMESPACE}/backlogQuota", {"limit": 5, "policy": "producer_request_hold"})
    document = await server.get(NAMESPACE)
    assert document["retention_policies"] == RETENTION
    assert document["message_ttl_in_seconds"] is None
    assert document["max_topics_per_namespace"] == 12
    await server.put("/admin/v2/namespaces/public/copy", document)
    assert await server.get("/admin/v2/namespaces/public/copy") == document


async def test_policies_of_topics_that_are_not_there(server: AdminServer) -> None:
    await server.get(f"{ADMIN}/none/retention", 404)
    await server.post(f"{ADMIN}/none/retention", RETENTION, 404)
    await server.post("/admin/v2/namespaces/public/none/retention", RETENTION, 404)
    assert await server.get(f"{ADMIN}", 200) == ["persistent://public/default/t"]


async def test_a_partition_has_its_topics_policies(server: AdminServer) -> None:
    await server.put(f"{ADMIN}/p/partitions", 2)
    await server.post(f"{ADMIN}/p-partition-1/retention", RETENTION)
    assert await server.get(f"{ADMIN}/p/retention") == RETENTION
    assert await server.get(f"{ADMIN}/p-partition-0/retention") == RETENTION


# -- what they do


async def test_the_most_topics_of_a_namespace(server: AdminServer) -> None:
    await server.post(f"{NAMESPACE}/maxTopicsPerNamespace", 4)
    await server.put(f"{ADMIN}/p/partitions", 2)
    answer = await server.put(f"{ADMIN}/q/partitions", 2, 412)
    assert answer["error_code"] == 41203
    await server.put(f"{ADMIN}/q")
    await server.post(f"{ADMIN}/p/partitions", 3, 412)
    refused = await server.post("/topics/public/default/on-the-way", {"messages": [{"value": "x"}]}, 412)
    assert refused["error_code"] == 41203
    await server.delete(f"{ADMIN}/q")
    await server.post(f"{ADMIN}/p/partitions", 3)


async def test_the_most_subscriptions_and_consumers(server: AdminServer) -> None:
    await server.post(f"{TOPIC}/maxSubscriptionsPerTopic", 2)
    await server.post(f"{TOPIC}/maxConsumersPerSubscription", 2)
    await server.post(f"{TOPIC}/maxConsumers", 3)
    for name in ("a", "b"):
        await server.put(f"{TOPIC}/subscription/{name}", "earliest")
    answer = await server.put(f"{TOPIC}/subscription/c", "earliest", 412)
    assert answer["error_code"] == 41204
    consumers = "/topics/public/default/t/subscription"
    first = await server.post(f"{consumers}/a", {"subscription_type": "Shared"}, 200)
    await server.post(f"{consumers}/a", {"subscription_type": "Shared"}, 200)
    answer = await server.post(f"{consumers}/a", {"subscription_type": "Shared"}, 409)
    assert answer["error_code"] == 40901
    await server.post(f"{consumers}/b", {"subscription_type": "Shared"}, 200)
    await server.post(f"{consumers}/b", {"subscription_type": "Shared"}, 409)
    assert first
    await server.delete(f"{TOPIC}/subscription/b", force="true")
    await server.put(f"{TOPIC}/subscription/c", "earliest")
    await server.post(f"{consumers}/c", {"subscription_type": "Shared"}, 200)


async def test_expiring_by_hand_on_every_subscription(server: AdminServer) -> None:
    for name in ("a", "b"):
        await server.put(f"{TOPIC}/subscription/{name}", "earliest")
    await server.produce("t", "old")
    await server.clock.advance(60_000)
    await server.produce("t", "young")
    await server.post(f"{TOPIC}/all_subscription/expireMessages/30")
    stats = await server.get(f"{TOPIC}/stats")
    assert {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()} == {"a": 1, "b": 1}
    await server.post(f"{TOPIC}/subscription/a/expireMessages/0")
    await server.clock.advance(1)
    await server.post(f"{TOPIC}/subscription/a/expireMessages/0")
    stats = await server.get(f"{TOPIC}/stats")
    assert {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()} == {"a": 0, "b": 1}


async def test_stats_tell_the_backlog_and_what_is_stored(server: AdminServer) -> None:
    await server.put(f"{TOPIC}/subscription/s", "earliest")
    published = server.clock.now_ms()
    await server.produce("t", "x" * 1000)
    await server.produce("t", "y" * 1000)
    await server.clock.advance(5000)
    stats = await server.get(f"{TOPIC}/stats")
    assert stats["backlogSize"] == stats["storageSize"] > 2000
    assert stats["earliestMsgPublishTimeInBacklogs"] == published
    assert stats["oldestBacklogMessageAgeSeconds"] == 5
    size = await server.put(f"{TOPIC}/backlogSize", {"ledgerId": 0, "entryId": 1}, 200)
    assert size == stats["storageSize"] // 2
    assert await server.put(f"{TOPIC}/backlogSize", "earliest", 200) == stats["storageSize"]

    await server.post(f"{TOPIC}/subscription/s/skip/1")
    await server.post(f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    await server.clock.advance(CHECK)
    stats = await server.get(f"{TOPIC}/stats")
    assert stats["backlogSize"] == stats["storageSize"] == size
    assert (await server.get(f"{TOPIC}/internalStats"))["totalSize"] == size
    await server.post(f"{TOPIC}/subscription/s/skip_all")
    stats = await server.get(f"{TOPIC}/stats")
    assert (stats["backlogSize"], stats["oldestBacklogMessageAgeSeconds"]) == (0, -1)


async def test_publishing_over_rest_beyond_a_quota(server: AdminServer) -> None:
    await server.put(f"{TOPIC}/subscription/s", "earliest")
    quota = {"limitSize": 500, "policy": "producer_exception"}
    await server.post(f"{TOPIC}/backlogQuota", quota)
    await server.produce("t", "x" * 500)
    message = {"messages": [{"value": "y"}]}
    answer = await server.post("/topics/public/default/t", message, 503)
    assert answer["error_code"] == 50305
    await server.post(f"{TOPIC}/subscription/s/skip_all")
    await server.produce("t", "y")
