"""A whole server before a real Kafka, from outside."""

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import Address, running


def _engine(cluster: KafkaCluster) -> ClusterSettings:
    return ClusterSettings(url=cluster.service_url, learned_ms=0, documents_topic=f"__{uuid4().hex[:10]}")


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    with running(engine=_engine(kafka_cluster)) as address:
        yield address


@pytest.fixture
def rest(server: Address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def topic(rest: httpx.Client) -> str:
    name = f"t-{uuid4().hex[:10]}"
    assert rest.put(f"/admin/v2/persistent/public/default/{name}").status_code == 204
    return name


def _records(cluster: KafkaCluster, topic: str, count: int) -> list[Any]:
    """So many records of a topic, as any consumer of Kafka's sees them."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "tests", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        found = consumer.consume(count, 60)
        assert len(found) == count
        return found
    finally:
        consumer.close()


def _produce(
    cluster: KafkaCluster, topic: str, *records: tuple[bytes | None, bytes, dict[str, bytes]]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for key, value, headers in records:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0


def test_what_is_published_over_rest_is_a_record(
    rest: httpx.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    messages = [{"value": "one", "key": "k", "properties": {"a": "b"}}, {"value": "two"}]
    answer = rest.post(f"/topics/public/default/{topic}", json={"messages": messages})
    assert [one["error"] for one in answer.json()["messageIds"]] == [None, None]
    first, second = _records(kafka_cluster, topic, 2)
    assert (first.key(), first.value()) == (b"k", b"one")
    assert dict(first.headers())["a"] == b"b"
    assert (second.key(), second.value()) == (None, b"two")


def test_single_values_go_to_partitions_in_turn(rest: httpx.Client, server: Address) -> None:
    name = f"t-{uuid4().hex[:10]}"
    path = f"/topics/public/default/{name}"
    assert rest.put(f"/admin/v2/persistent/public/default/{name}/partitions", json=3).status_code == 204
    found: dict[int, list[tuple[str, str]]] = {0: [], 1: [], 2: []}
    for number in range(7):  # the first makes the producer, and the others need nothing but their payload
        (told,) = rest.post(path, json={"messages": [{"value": f"v{number}"}]}).json()["messageIds"]
        assert told["error"] is None
        found[told["partition"]].append((told["messageId"], f"v{number}"))
    assert sorted(map(len, found.values())) == [2, 2, 3]
    for partition, published in found.items():
        read = rest.get(f"{path}/partitions/{partition}/messages", params={"offset": 0}).json()["messages"]
        assert [(one["messageId"], one["value"]) for one in read] == published


def test_records_of_other_producers_are_consumed_over_rest(
    rest: httpx.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    _produce(kafka_cluster, topic, (b"k", b"one", {"a": b"b"}), (None, b"two", {}), (None, b"three", {}))
    path, subscription = f"/topics/public/default/{topic}", f"s-{topic}"
    wanted = {"subscription_type": "Shared", "initial_position": "earliest"}
    instance = rest.post(f"{path}/subscription/{subscription}", json=wanted).json()["base_uri"]
    found: list[dict[str, Any]] = []

    def all_came() -> bool:
        answer = rest.get(f"{instance}/messages", params={"timeout": 1000, "max_messages": 10})
        found.extend(answer.json()["messages"])
        return len(found) == 3

    until(all_came)
    assert [base64.b64decode(one["value"]) for one in found] == [b"one", b"two", b"three"]
    assert (found[0]["key"], found[0]["properties"]) == ("k", {"a": "b"})
    assert [one["offset"] for one in found] == [0, 1, 2]
    done = {"messageIds": [one["messageId"] for one in found[:2]]}
    assert rest.post(f"{path}/subscription/{subscription}/cursor", json=done).status_code == 200
    stats = rest.get(f"/admin/v2/persistent/public/default/{topic}/stats").json()
    assert stats["subscriptions"][subscription]["msgBacklog"] == 1
    assert rest.get(f"/admin/v2/persistent/public/default/{topic}/subscriptions").json() == [subscription]
    assert rest.delete(instance).status_code == 204


def test_websockets_publish_and_consume(server: Address, topic: str) -> None:
    path = f"persistent/public/default/{topic}"
    producer = websocket.create_connection(f"{server.ws}/ws/v2/producer/{path}", timeout=60)
    producer.send(json.dumps({"payload": base64.b64encode(b"one").decode(), "properties": {"a": "b"}}))
    assert json.loads(producer.recv())["result"] == "ok"
    where = f"{server.ws}/ws/v2/consumer/{path}/g-{topic}?subscriptionInitialPosition=Earliest"
    consumer = websocket.create_connection(where, timeout=60)
    message = json.loads(consumer.recv())
    assert (base64.b64decode(message["payload"]), message["properties"]) == (b"one", {"a": "b"})
    consumer.send(json.dumps({"messageId": message["messageId"]}))
    consumer.close()
    producer.close()


def test_pulsars_own_client_publishes_and_consumes(
    server: Address, kafka_cluster: KafkaCluster, topic: str
) -> None:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.pulsar, logger=quiet)
    try:
        producer = client.create_producer(
            topic, batching_enabled=True, compression_type=pulsar.CompressionType.LZ4
        )
        for number in range(5):
            producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number}")
        producer.flush()
        consumer = client.subscribe(
            topic,
            f"g-{topic}",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        for number in range(5):
            message = consumer.receive(60_000)
            assert (message.data(), message.partition_key()) == (b"%d" % number, f"k{number}")
            consumer.acknowledge(message)
    finally:
        client.close()
    assert [one.value() for one in _records(kafka_cluster, topic, 5)] == [b"%d" % n for n in range(5)]


def test_topics_are_administered_here_and_seen_by_kafkas_tools(kafka_cluster: KafkaCluster) -> None:
    topic = f"t-{uuid4().hex[:10]}"
    path = f"/admin/v2/persistent/public/default/{topic}"
    with running(engine=_engine(kafka_cluster)) as server, httpx.Client(base_url=server.url) as client:
        assert client.put(f"{path}/partitions", json=2).status_code == 204
        assert client.put(f"{path}/partitions", json=2).status_code == 409
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
        assert client.post(f"{path}/retention", json=retention).status_code == 204
        described = kafka_cluster.tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic)
        assert "PartitionCount: 2" in described
        assert "retention.ms=300000" in described
        kafka_cluster.tool("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", topic)
        until(lambda: client.get(path).status_code == 404)


def test_what_kafka_has_not_is_refused(kafka_cluster: KafkaCluster) -> None:
    topic = f"t-{uuid4().hex[:10]}"
    path = f"/admin/v2/persistent/public/default/{topic}"
    with running(engine=_engine(kafka_cluster)) as server, httpx.Client(base_url=server.url) as client:
        assert client.put(path).status_code == 204
        assert client.post(f"{path}/terminate").status_code == 501
        assert client.put(f"{path}/compaction").status_code == 501
        assert client.post(f"{path}/messageTTL", params={"messageTTL": 5}).status_code == 501
        assert client.get(f"/admin/v2/non-persistent/public/default/{topic}/stats").status_code == 501


def test_the_server_is_ready_while_the_cluster_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.kafka.cluster.LOOK_S", 1.0)
    with (
        standalone(tmp_path) as cluster,
        running(engine=_engine(cluster)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.get("/health/ready").status_code == 200
        cluster.kill(signal.SIGKILL)
        until(lambda: client.get("/health/ready").status_code == 503)
        assert client.get("/health/ready").json()["reason"] == "cluster_unreachable"
        assert client.get("/health/live").status_code == 200
        cluster.restart()
        until(lambda: client.get("/health/ready").status_code == 200)
