"""Version 3 of the REST proxy's API before a real Kafka: its brokers, configurations, consumer groups and lags."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    settings = ClusterSettings(
        url=kafka_cluster.service_url, learned_ms=0, documents_topic=f"__{uuid4().hex[:10]}"
    )
    with running(engine=settings) as address:
        yield address


@pytest.fixture(scope="module")
def v3(server: Address, kafka_cluster: KafkaCluster) -> Iterator[httpx.Client]:
    """A client whose paths are below the cluster."""
    with httpx.Client(base_url=f"{server.url}/rest/v3/", timeout=60) as client:
        (cluster,) = client.get("clusters").json()["data"]
        probe = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
        assert cluster["cluster_id"] == probe.list_topics(timeout=60).cluster_id
        client.base_url = httpx.URL(cluster["metadata"]["self"] + "/")
        yield client


@pytest.fixture
def topic(server: Address) -> str:
    """A topic of three partitions, with 2 records in each."""
    name = f"t-{uuid4().hex[:10]}"
    path = f"{server.url}/admin/v2/persistent/public/default/{name}/partitions"
    assert httpx.put(path, json=3, timeout=60).status_code == 204
    return name


def fill(cluster: KafkaCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition in range(3):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(60) == 0


def read(v3: httpx.Client, path: str) -> Any:
    answer = v3.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_brokers_and_the_replicas_are_those_of_the_cluster(
    v3: httpx.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    (broker,) = read(v3, "brokers")["data"]
    host, _, port = kafka_cluster.bootstrap.rpartition(":")
    assert (broker["host"], broker["port"]) == (host, int(port))
    number = broker["broker_id"]
    assert read(v3, f"brokers/{number}") == broker
    assert read(v3, "")["controller"]["related"].endswith(f"/brokers/{number}")
    found = read(v3, f"topics/{topic}")
    assert (found["partitions_count"], found["replication_factor"]) == (3, 1)
    assert found in read(v3, "topics")["data"]
    partitions = read(v3, f"topics/{topic}/partitions")["data"]
    assert [one["partition_id"] for one in partitions] == [0, 1, 2]
    (replica,) = read(v3, f"topics/{topic}/partitions/1/replicas")["data"]
    assert (replica["broker_id"], replica["is_leader"], replica["is_in_sync"]) == (number, True, True)
    assert partitions[1]["leader"]["related"] == replica["metadata"]["self"]


def test_offsets_and_configurations(v3: httpx.Client, kafka_cluster: KafkaCluster, topic: str) -> None:
    fill(kafka_cluster, topic, 2)
    found = read(v3, f"topics/{topic}/partitions/2/offset")
    assert (found["earliest_offset"], found["latest_offset"]) == (0, 2)
    configs = {one["name"]: one for one in read(v3, f"topics/{topic}/configs")["data"]}
    assert list(configs) == sorted(configs)
    one = configs["retention.ms"]
    assert read(v3, f"topics/{topic}/configs/retention.ms") == one
    assert one["source"] in ("DEFAULT_CONFIG", "STATIC_BROKER_CONFIG", "DYNAMIC_TOPIC_CONFIG")
    assert configs["segment.bytes"]["synonyms"][-1]["source"] == "DEFAULT_CONFIG"
    assert one in read(v3, "topics/-/configs")["data"]


def test_a_group_of_kafkas_clients_has_members_and_lags(
    v3: httpx.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    fill(kafka_cluster, topic, 4)
    group = f"g/{uuid4().hex[:10]}"
    path = f"consumer-groups/{group.replace('/', '%2F')}"
    consumer = Consumer(
        {
            "bootstrap.servers": kafka_cluster.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.2) is not None and len(consumer.assignment()) == 3)
        offsets = [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 1), TopicPartition(topic, 2, 3)]
        consumer.commit(offsets=offsets, asynchronous=False)
        until(lambda: read(v3, path)["state"] == "STABLE")
        found = read(v3, path)
        assert (found["type"], found["partition_assignor"], found["is_simple"]) == ("CLASSIC", "range", False)
        assert found in read(v3, "consumer-groups")["data"]
        (member,) = read(v3, f"{path}/consumers")["data"]
        assert (member["client_id"], member["instance_id"]) == ("reader", None)
        assert read(v3, f"{path}/consumers/{member['consumer_id']}") == member
        assignments = read(v3, f"{path}/consumers/{member['consumer_id']}/assignments")["data"]
        assert [(one["topic_name"], one["partition_id"]) for one in assignments] == [
            (topic, n) for n in range(3)
        ]
        lags = read(v3, f"{path}/lags")["data"]
        assert [(one["partition_id"], one["current_offset"], one["lag"]) for one in lags] == [
            (1, 1, 3),
            (2, 3, 1),
            (0, 4, 0),
        ]
        assert {(one["log_end_offset"], one["client_id"]) for one in lags} == {(4, "reader")}
        assert read(v3, assignments[1]["lag"]["related"]) == lags[0]
        summary = read(v3, f"{path}/lag-summary")
        assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (3, 4, 1)
        assert summary["max_lag_consumer_id"] == member["consumer_id"]
    finally:
        consumer.close()
    until(lambda: read(v3, path)["state"] == "EMPTY")
    assert read(v3, f"{path}/lag-summary")["max_lag_consumer_id"] == ""


def test_what_is_not_there(v3: httpx.Client) -> None:
    for path, code in (
        ("consumer-groups/nobody", 404),
        ("consumer-groups/nobody/lags", 404),
        ("brokers/77", 404),
        ("topics/nothing", 40403),
        ("topics/nothing/configs", 40403),
    ):
        answer = v3.get(path)
        assert (answer.status_code, answer.json()["error_code"]) == (404, code), path


def test_records_are_streamed_as_kafkas_own(
    v3: httpx.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    record = {
        "partition_id": 1,
        "key": {"type": "BINARY", "data": "AP8="},
        "value": {"type": "JSON", "data": {"a": [1, None]}},
        "headers": [{"name": "h", "value": "aGk="}, {"name": "h", "value": None}],
        "timestamp": "2026-02-05T19:14:42.123Z",
    }
    keyed = {"key": {"type": "STRING", "data": "k"}, "value": {"type": "STRING", "data": "v"}}
    body = "".join(json.dumps(one) for one in (record, {"partition_id": 1}, {"partition_id": 3}, keyed))
    answer = v3.post(f"topics/{topic}/records", content=body, headers={"content-type": "application/json"})
    first, null, wrong, last = map(json.loads, answer.text.splitlines())
    assert (first["partition_id"], first["offset"], first["timestamp"]) == (1, 0, "2026-02-05T19:14:42.123Z")
    assert (first["key"]["size"], first["value"]["size"]) == (2, 14)
    assert (null["partition_id"], null["offset"]) == (1, 1)
    assert wrong == {"error_code": 40402, "message": "Partition not found."}
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap, "group.id": "none", "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, 1, 0)])
        stored, tombstone = consumer.consume(2, 60)
        assert (stored.key(), stored.value()) == (b"\0\xff", b'{"a":[1,null]}')
        assert stored.timestamp() == (1, 1770318882123)
        assert ("h", b"hi") in stored.headers()
        assert tombstone.value() is None
        consumer.assign([TopicPartition(topic, last["partition_id"], last["offset"])])
        (found,) = consumer.consume(1, 60)
        assert (found.key(), found.value()) == (b"k", b"v")
    finally:
        consumer.close()
    spread = [{"value": {"type": "JSON", "data": n}} for n in range(5)]
    batch = v3.post(
        f"topics/{topic}/records:batch",
        json={"entries": [{"id": str(n), **one} for n, one in enumerate(spread)]},
    )
    assert (batch.status_code, len(batch.json()["successes"])) == (207, 5)
