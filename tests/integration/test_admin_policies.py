"""Policies under Pulsar's paths, and what the endpoints answer by them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.integration.admin_harness import ADMIN, Office, office

from penstock.broker.settings import BrokerSettings

pytestmark = pytest.mark.anyio

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = f"{ADMIN}/t"
CHECK = BrokerSettings().keep_check_ms


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def desk() -> AsyncIterator[Office]:
    async with office() as made:
        await made.put(TOPIC)
        yield made


RETENTION = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}


async def test_retention(desk: Office) -> None:
    assert await desk.get(f"{NAMESPACE}/retention") is None
    await desk.post(f"{NAMESPACE}/retention", RETENTION)
    assert await desk.get(f"{NAMESPACE}/retention") == RETENTION
    assert await desk.get(f"{TOPIC}/retention") is None
    assert await desk.get(f"{TOPIC}/retention", applied="true") == RETENTION

    own = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5}
    await desk.post(f"{TOPIC}/retention", own)
    assert await desk.get(f"{TOPIC}/retention") == own
    assert (await desk.get(TOPIC))["retention"] == own
    await desk.delete(f"{TOPIC}/retention")
    assert await desk.get(f"{TOPIC}/retention", applied="true") == RETENTION
    await desk.delete(f"{NAMESPACE}/retention")
    nothing = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert await desk.get(f"{TOPIC}/retention", applied="true") == nothing


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
async def test_what_cannot_be_changes_nothing(desk: Office, path: str, body: Any) -> None:
    before = await desk.get(NAMESPACE)
    for where in (NAMESPACE, TOPIC):
        answer = await desk.ask("POST", f"{where}/{path}", body, 400)
        assert answer["error_code"] == 40001
    assert await desk.get(NAMESPACE) == before
    assert await desk.get(f"{TOPIC}/backlogQuotaMap") == {}


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
async def test_numbers(desk: Office, namespace: str, topic: str, applied: int) -> None:
    at, of = f"{NAMESPACE}/{namespace}", f"{TOPIC}/{topic}"
    assert await desk.get(at) is None
    assert await desk.get(of, applied="true") == applied
    await desk.post(at, 7)
    assert (await desk.get(at), await desk.get(of), await desk.get(of, applied="true")) == (7, None, 7)
    await desk.post(of, 0)
    assert await desk.get(of, applied="true") == 0
    await desk.delete(of)
    await desk.delete(at)
    assert (await desk.get(at), await desk.get(of), await desk.get(of, applied="true")) == (
        None,
        None,
        applied,
    )


async def test_a_topics_expiry_may_come_in_the_query(desk: Office) -> None:
    await desk.post(f"{TOPIC}/messageTTL", messageTTL="90")
    assert await desk.get(f"{TOPIC}/messageTTL") == 90
    await desk.post(f"{TOPIC}/messageTTL", None, 400, messageTTL="-1")


async def test_deduplication_of_a_topic(desk: Office) -> None:
    assert await desk.get(f"{TOPIC}/deduplicationEnabled", applied="true") is False
    await desk.post(f"{TOPIC}/deduplicationEnabled", True)
    assert (await desk.get(f"{TOPIC}/stats"))["deduplicationStatus"] == "Enabled"
    await desk.delete(f"{TOPIC}/deduplicationEnabled")
    assert (await desk.get(f"{TOPIC}/stats"))["deduplicationStatus"] == "Disabled"


async def test_backlog_quotas(desk: Office) -> None:
    size = {"limitSize": 1000, "policy": "producer_exception"}
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    await desk.post(f"{NAMESPACE}/backlogQuota", size)
    await desk.post(f"{TOPIC}/backlogQuota", age, backlogQuotaType="message_age")
    shown_size = {"limit": 1000, "limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    shown_age = {"limit": -1, "limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}
    assert await desk.get(f"{NAMESPACE}/backlogQuotaMap") == {"destination_storage": shown_size}
    assert await desk.get(f"{TOPIC}/backlogQuotaMap") == {"message_age": shown_age}
    both = {"destination_storage": shown_size, "message_age": shown_age}
    assert await desk.get(f"{TOPIC}/backlogQuotaMap", applied="true") == both
    stats = await desk.get(f"{TOPIC}/stats")
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (1000, 60)
    await desk.delete(f"{TOPIC}/backlogQuota", backlogQuotaType="message_age")
    await desk.delete(f"{NAMESPACE}/backlogQuota")
    assert await desk.get(f"{TOPIC}/backlogQuotaMap") == {}
    assert await desk.get(f"{NAMESPACE}/backlogQuotaMap") == {}


async def test_a_namespace_is_created_with_policies_as_it_is_described(desk: Office) -> None:
    await desk.post(f"{NAMESPACE}/retention", RETENTION)
    await desk.post(f"{NAMESPACE}/maxTopicsPerNamespace", 12)
    await desk.post(f"{NAMESPACE}/backlogQuota", {"limit": 5, "policy": "producer_request_hold"})
    document = await desk.get(NAMESPACE)
    assert document["retention_policies"] == RETENTION
    assert document["message_ttl_in_seconds"] is None
    assert document["max_topics_per_namespace"] == 12
    await desk.put("/admin/v2/namespaces/public/copy", document)
    assert await desk.get("/admin/v2/namespaces/public/copy") == document


async def test_policies_of_topics_that_are_not_there(desk: Office) -> None:
    await desk.get(f"{ADMIN}/none/retention", 404)
    await desk.post(f"{ADMIN}/none/retention", RETENTION, 404)
    await desk.post("/admin/v2/namespaces/public/none/retention", RETENTION, 404)
    assert await desk.get(f"{ADMIN}", 200) == ["persistent://public/default/t"]


async def test_a_partition_has_its_topics_policies(desk: Office) -> None:
    await desk.put(f"{ADMIN}/p/partitions", 2)
    await desk.post(f"{ADMIN}/p-partition-1/retention", RETENTION)
    assert await desk.get(f"{ADMIN}/p/retention") == RETENTION
    assert await desk.get(f"{ADMIN}/p-partition-0/retention") == RETENTION


# -- what they do


async def test_the_most_topics_of_a_namespace(desk: Office) -> None:
    await desk.post(f"{NAMESPACE}/maxTopicsPerNamespace", 4)
    await desk.put(f"{ADMIN}/p/partitions", 2)
    answer = await desk.put(f"{ADMIN}/q/partitions", 2, 412)
    assert answer["error_code"] == 41203
    await desk.put(f"{ADMIN}/q")
    await desk.post(f"{ADMIN}/p/partitions", 3, 412)
    refused = await desk.post("/topics/public/default/on-the-way", {"messages": [{"value": "x"}]}, 412)
    assert refused["error_code"] == 41203
    await desk.delete(f"{ADMIN}/q")
    await desk.post(f"{ADMIN}/p/partitions", 3)


async def test_the_most_subscriptions_and_consumers(desk: Office) -> None:
    await desk.post(f"{TOPIC}/maxSubscriptionsPerTopic", 2)
    await desk.post(f"{TOPIC}/maxConsumersPerSubscription", 2)
    await desk.post(f"{TOPIC}/maxConsumers", 3)
    for name in ("a", "b"):
        await desk.put(f"{TOPIC}/subscription/{name}", "earliest")
    answer = await desk.put(f"{TOPIC}/subscription/c", "earliest", 412)
    assert answer["error_code"] == 41204
    consumers = "/topics/public/default/t/subscription"
    first = await desk.post(f"{consumers}/a", {"subscription_type": "Shared"}, 200)
    await desk.post(f"{consumers}/a", {"subscription_type": "Shared"}, 200)
    answer = await desk.post(f"{consumers}/a", {"subscription_type": "Shared"}, 409)
    assert answer["error_code"] == 40901
    await desk.post(f"{consumers}/b", {"subscription_type": "Shared"}, 200)
    await desk.post(f"{consumers}/b", {"subscription_type": "Shared"}, 409)
    assert first
    await desk.delete(f"{TOPIC}/subscription/b", force="true")
    await desk.put(f"{TOPIC}/subscription/c", "earliest")
    await desk.post(f"{consumers}/c", {"subscription_type": "Shared"}, 200)


async def test_expiring_by_hand_on_every_subscription(desk: Office) -> None:
    for name in ("a", "b"):
        await desk.put(f"{TOPIC}/subscription/{name}", "earliest")
    await desk.produce("t", "old")
    await desk.clock.advance(60_000)
    await desk.produce("t", "young")
    await desk.post(f"{TOPIC}/all_subscription/expireMessages/30")
    stats = await desk.get(f"{TOPIC}/stats")
    assert {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()} == {"a": 1, "b": 1}
    await desk.post(f"{TOPIC}/subscription/a/expireMessages/0")
    await desk.clock.advance(1)
    await desk.post(f"{TOPIC}/subscription/a/expireMessages/0")
    stats = await desk.get(f"{TOPIC}/stats")
    assert {name: one["msgBacklog"] for name, one in stats["subscriptions"].items()} == {"a": 0, "b": 1}


async def test_stats_tell_the_backlog_and_what_is_stored(desk: Office) -> None:
    await desk.put(f"{TOPIC}/subscription/s", "earliest")
    published = desk.clock.now_ms()
    await desk.produce("t", "x" * 1000)
    await desk.produce("t", "y" * 1000)
    await desk.clock.advance(5000)
    stats = await desk.get(f"{TOPIC}/stats")
    assert stats["backlogSize"] == stats["storageSize"] > 2000
    assert stats["earliestMsgPublishTimeInBacklogs"] == published
    assert stats["oldestBacklogMessageAgeSeconds"] == 5
    size = await desk.put(f"{TOPIC}/backlogSize", {"ledgerId": 0, "entryId": 1}, 200)
    assert size == stats["storageSize"] // 2
    assert await desk.put(f"{TOPIC}/backlogSize", "earliest", 200) == stats["storageSize"]

    await desk.post(f"{TOPIC}/subscription/s/skip/1")
    await desk.post(f"{NAMESPACE}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    await desk.clock.advance(CHECK)
    stats = await desk.get(f"{TOPIC}/stats")
    assert stats["backlogSize"] == stats["storageSize"] == size
    assert (await desk.get(f"{TOPIC}/internalStats"))["totalSize"] == size
    await desk.post(f"{TOPIC}/subscription/s/skip_all")
    stats = await desk.get(f"{TOPIC}/stats")
    assert (stats["backlogSize"], stats["oldestBacklogMessageAgeSeconds"]) == (0, -1)


async def test_publishing_over_rest_beyond_a_quota(desk: Office) -> None:
    await desk.put(f"{TOPIC}/subscription/s", "earliest")
    quota = {"limitSize": 500, "policy": "producer_exception"}
    await desk.post(f"{TOPIC}/backlogQuota", quota)
    await desk.produce("t", "x" * 500)
    message = {"messages": [{"value": "y"}]}
    answer = await desk.post("/topics/public/default/t", message, 503)
    assert answer["error_code"] == 50305
    await desk.post(f"{TOPIC}/subscription/s/skip_all")
    await desk.produce("t", "y")
