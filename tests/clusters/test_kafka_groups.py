"""Consumer groups of Kafka beside subscriptions: positions that subscriptions begin at, and those that Kafka's tools are shown."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.support.cli import Commands
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.cluster import KafkaCluster as Cluster
from penstock.engines.kafka.serving.shown_marks import shown_group
from penstock.testing.server import Running, running

ADMIN = "/admin/v2/persistent/public/default"
TOPICS = "/topics/public/default"


@pytest.fixture
def prefix() -> str:
    """Of what belongs to the test's own service."""
    return f"t{uuid4().hex[:10]}."


@contextlib.contextmanager
def served(cluster: KafkaCluster, prefix: str) -> Iterator[tuple[Running, httpx.Client]]:
    settings = ClusterSettings(
        url=cluster.service_url, learned_ms=0, documents_topic=f"__{prefix}documents", group_prefix=prefix
    )
    with running(engine=settings) as server, httpx.Client(base_url=server.url, timeout=60) as rest:
        yield server, rest


def groups(cluster: KafkaCluster, act: Callable[[Cluster], Any]) -> Any:
    """What an act with the cluster returns."""

    async def acted() -> Any:
        made = Cluster(ClusterSettings(url=cluster.service_url))
        await made.start()
        try:
            return await act(made)
        finally:
            await made.close()

    return asyncio.run(acted())


def commit(cluster: KafkaCluster, group: str, topic: str, *offsets: int | None) -> None:
    """Commit for the partitions of a topic, as a program does that is not running now."""
    changes = {(topic, number): one for number, one in enumerate(offsets) if one is not None}
    groups(cluster, lambda made: made.groups.commit(group, changes))


def committed(cluster: KafkaCluster, group: str, topic: str, partitions: int) -> list[int | None]:
    """What Kafka's own client shows of a group."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(partitions)], timeout=60
        )
        return [one.offset if one.offset >= 0 else None for one in found]
    finally:
        consumer.close()


def fill(cluster: KafkaCluster, rest: httpx.Client, topic: str, partitions: int, count: int) -> None:
    """A topic with messages `partition:offset`."""
    assert rest.put(f"{ADMIN}/{topic}/partitions", json=partitions).status_code == 204
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition in range(partitions):
        for offset in range(count):
            producer.produce(topic, f"{partition}:{offset}", partition=partition)
    assert producer.flush(60) == 0


def consumed(rest: httpx.Client, topic: str, subscription: str, count: int, **options: Any) -> set[str]:
    """What a new consumer gets, and acknowledges; no more than `count` come within a second."""
    path = f"{TOPICS}/{topic}/subscription/{subscription}"
    made = rest.post(path, json={"subscription_type": "Shared", **options})
    assert made.status_code == 200, made.text
    base = made.json()["base_uri"]
    found: list[str] = []
    ids: list[str] = []
    while True:
        wait_ms = 60_000 if len(found) < count else 1000
        got = rest.get(f"{base}/messages", params={"timeout": wait_ms, "encoding": "text"})
        assert got.status_code == 200, got.text
        messages = got.json()["messages"]
        if not messages:
            break
        found += [one["value"] for one in messages]
        ids += [one["messageId"] for one in messages]
    if ids:
        acked = rest.post(f"{base}/cursor", json={"messageIds": ids})
        assert acked.status_code < 300, acked.text
    assert rest.delete(base).status_code == 204
    assert len(found) == len(set(found)), "a message came twice"
    return set(found)


def test_a_subscription_begins_where_a_group_goes_on(
    kafka_cluster: KafkaCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = f"{prefix}orders", f"{prefix}app"
    with served(kafka_cluster, prefix) as (server, rest):
        commands = Commands(server.url, monkeypatch)
        fill(kafka_cluster, rest, topic, 4, 6)
        # Partition 1 has no commit; that of partition 2 is beyond the end, as of a topic that was recreated.
        commit(kafka_cluster, group, topic, 4, None, 900, 6)
        path = f"{ADMIN}/{topic}/subscription"
        rest_of_it = {"0:4", "0:5"} | {f"{partition}:{n}" for partition in (1, 2) for n in range(6)}
        for name in ("by-command", "consumed", "made"):
            if name == "by-command":
                commands(f"subscriptions create {topic} {name} --group {group}")
            elif name == "made":
                made = rest.put(f"{path}/{name}", json={"group": group, "properties": {"team": "x"}})
                assert made.status_code == 204, made.text
                again = rest.put(f"{path}/{name}", json={"group": group})
                assert again.status_code == 409, again.text
                assert rest.get(f"{path}/{name}/properties").json() == {"team": "x"}
            position = {"group": group}
            assert consumed(rest, topic, name, 14, initial_position=position) == rest_of_it, name
            # It counts for a new subscription only.
            assert consumed(rest, topic, name, 0, initial_position=position) == set()
        assert committed(kafka_cluster, group, topic, 4) == [4, None, 900, 6], "the group was changed"
        unknown = rest.put(f"{path}/unknown", json={"group": f"{group}-not-there"})
        assert unknown.status_code == 400, unknown.text
        assert "has committed no position in" in unknown.text
        body = {"initial_position": {"group": f"{group}-not-there"}}
        assert rest.post(f"{TOPICS}/{topic}/subscription/unknown", json=body).status_code == 400
        assert rest.get(f"{ADMIN}/{topic}/subscriptions").json() == ["by-command", "consumed", "made"]
        moved = rest.post(f"{path}/made/resetcursor", json={"group": group})
        assert moved.status_code == 400, moved.text


def test_kafkas_tools_see_where_a_subscription_stands(kafka_cluster: KafkaCluster, prefix: str) -> None:
    topic = f"{prefix}parcels"
    group = shown_group(prefix, topic, "s")
    assert group == f"{prefix}penstock:{topic}:s"
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})

    def names() -> set[str]:
        return {one.group_id for one in admin.list_consumer_groups().result(60).valid}

    with served(kafka_cluster, prefix) as (_, rest):
        fill(kafka_cluster, rest, topic, 2, 5)
        assert rest.put(f"{ADMIN}/{topic}/subscription/s", json="earliest").status_code == 204
        until(lambda: committed(kafka_cluster, group, topic, 2) == [0, 0], 60)
        assert len(consumed(rest, topic, "s", 10)) == 10
        until(lambda: committed(kafka_cluster, group, topic, 2) == [5, 5], 60)
        shown = kafka_cluster.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", group
        )
        rows = [line.split() for line in shown.splitlines() if line.startswith(group)]
        assert sorted(row[:6] for row in rows) == [[group, topic, str(n), "5", "5", "0"] for n in (0, 1)]
        # A program that has this group keeps it.
        other = shown_group(prefix, topic, "other")
        native = Consumer(
            {
                "bootstrap.servers": kafka_cluster.bootstrap,
                "group.id": other,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        native.subscribe([topic])
        until(lambda: native.poll(0.2) is not None or native.assignment(), 60)
        assert rest.put(f"{ADMIN}/{topic}/subscription/other", json="latest").status_code == 204
        assert rest.put(f"{ADMIN}/{topic}/subscription/later", json="latest").status_code == 204
        until(lambda: committed(kafka_cluster, shown_group(prefix, topic, "later"), topic, 2) == [5, 5], 60)
        (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(other)]).values()
        assert found.result(60).topic_partitions == []
        assert len(native.assignment()) == 2
        native.close()
        assert rest.delete(f"{ADMIN}/{topic}/subscription/s").status_code == 204
        until(lambda: group not in names(), 60)
