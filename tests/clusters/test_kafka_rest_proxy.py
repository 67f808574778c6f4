"""Confluent's REST proxy before a real Kafka: instances are members of Kafka's groups, and any process serves them."""

import json
import signal
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer, TopicPartition
from tests.support.kafka_broker import KafkaCluster
from tests.support.registry_clients import Foreign, avro, encoded, engine_of, framed
from tests.support.rest_proxy import SCHEMA_STORIES, STORIES, Consumer, Proxy, b64, place
from tests.support.service import Service, flags_before, service
from tests.support.waiting import until

from penstock.testing.server import running

ALL = {"auto.offset.reset": "earliest"}


class AnyProcess(Proxy):
    """Every request goes to the next process of a service."""

    def __init__(self, of: Service) -> None:
        super().__init__(f"{of.nodes[0].url}/rest")
        self.processes = [Proxy(f"{node.url}/rest") for node in of.nodes]
        self._asked = 0

    def name(self, prefix: str = "topic") -> str:
        return f"{prefix}-{uuid4().hex[:10]}"

    def ask(self, *arguments: Any, **more: Any) -> Any:
        # Processes list topics every few seconds: the one that was asked last knows what it created.
        self._asked += arguments[1] != "/topics"
        return self.processes[self._asked % len(self.processes)].ask(*arguments, **more)

    def consumer(self, group: str, kind: str = "json", **options: Any) -> Consumer:
        given = {"format": kind, "auto.offset.reset": "earliest", "auto.commit.enable": "false", **options}
        made = self.post(f"/consumers/{group}", given)
        return Consumer(self, f"/consumers/{group}/instances/{made['instance_id']}", kind)

    def __exit__(self, *raised: object) -> None:
        super().__exit__()
        for one in self.processes:
            one.http.close()


@pytest.fixture(scope="module")
def proxy(kafka_service: Service) -> Iterator[AnyProcess]:
    with AnyProcess(kafka_service) as made:
        yield made


def client(cluster: KafkaCluster, group: str, *topics: str) -> KafkaConsumer:
    """Kafka's own client, as a member of a group."""
    made = KafkaConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    if topics:
        made.subscribe(list(topics))
    return made


@pytest.mark.parametrize("story", [*STORIES, *SCHEMA_STORIES], ids=lambda story: story.__name__)
def test_stories_of_which_every_request_is_asked_of_another_process(
    proxy: AnyProcess, story: Callable[[Proxy], None]
) -> None:
    story(proxy)


@pytest.mark.parametrize("name", ["", "named by the client"])
def test_an_instance_and_a_client_of_kafka_share_partitions_and_offsets(
    proxy: AnyProcess, kafka_service: Service, kafka_cluster: KafkaCluster, name: str
) -> None:
    topic, group = kafka_service.new_topic(4), proxy.name("group")
    places = [place(topic, number) for number in range(4)]
    proxy.produce(topic, [{"value": n, "partition": n % 4} for n in range(8)])
    instance = proxy.consumer(group, **({"name": name} if name else {}))
    instance.subscribe(topic)
    assert sorted(instance.values(8)) == list(range(8))
    assert instance.get("assignments") == {"partitions": places}
    instance.post("offsets", {"offsets": [place(topic, 2, offset=0, metadata="who")]}, 200)
    theirs = client(kafka_cluster, group)
    (found,) = theirs.committed([TopicPartition(topic, 2)], timeout=60)
    assert (found.offset, found.metadata) == (1, "who")
    instance.post("offsets", {}, 200)
    assert [one.offset for one in theirs.committed([TopicPartition(topic, n) for n in range(4)], 60)] == [
        2
    ] * 4
    theirs.subscribe([topic])
    until(lambda: theirs.poll(0.1) or len(theirs.assignment()) == 2)
    until(lambda: len(instance.get("assignments")["partitions"]) == 2)
    proxy.produce(topic, [{"value": 8 + n, "partition": n} for n in range(4)])
    mine = {one["partition"] for one in instance.get("assignments")["partitions"]}
    assert sorted(instance.values(2)) == sorted(8 + n for n in mine)
    records = theirs.consume(2, 60)
    assert sorted(json.loads(one.value()) for one in records) == sorted(8 + n for n in {0, 1, 2, 3} - mine)
    theirs.commit(asynchronous=False)
    instance.post("offsets", {}, 200)
    instance.delete()
    until(lambda: theirs.poll(0.1) or len(theirs.assignment()) == 4)
    theirs.close()
    again = proxy.consumer(group)
    assert again.committed(*((topic, n) for n in range(4))) == [(topic, n, 3) for n in range(4)]
    again.delete()


def test_an_instance_whose_process_was_killed_is_gone_and_its_partitions_move(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    with service(tmp_path, flags_before(kafka_cluster), 2) as made, AnyProcess(made) as proxy:
        topic, group = made.new_topic(2), proxy.name("group")
        first, second = proxy.processes
        lost = [first.consumer(group), first.consumer(group, name="named")]
        kept = second.consumer(group)
        for one in (*lost, kept):
            one.subscribe(topic)
        theirs = client(kafka_cluster, group, topic)
        until(lambda: theirs.poll(0.1) or second.ask("GET", f"{lost[0].path}/assignments"))
        made.nodes[0].process.send_signal(signal.SIGKILL)
        made.nodes[0].process.wait()
        for one in lost:
            second.ask("GET", f"{one.path}/assignments", 404, 40403)
            second.ask("DELETE", one.path, 404, 40403)
        assert len(kept.get("assignments")["partitions"]) <= 1
        until(lambda: theirs.poll(0.1) or len(theirs.assignment()) == 1)
        until(lambda: theirs.poll(0.1) or len(kept.get("assignments")["partitions"]) == 1)
        theirs.close()
        until(lambda: len(kept.get("assignments")["partitions"]) == 2)
        again = second.consumer(group, name="named")
        again.delete()


def test_binary_is_the_bytes_of_the_record_and_other_formats_its_value(
    kafka_cluster: KafkaCluster, registry_url: str
) -> None:
    foreign = Foreign(kafka_cluster, registry_url)
    with (
        running(engine=engine_of(kafka_cluster, registry_url)) as server,
        Proxy(server.rest_proxy_url) as proxy,
    ):
        topic = f"t{uuid4().hex[:10]}"
        proxy.produce(topic, [{"value": b64("plain")}], "binary")
        schema = avro("a")
        value = framed(foreign.register(f"{topic}-value", schema.data.decode()), encoded(schema, a="x"))
        foreign.produce(topic, value)
        found = {}
        for kind in ("binary", "avro"):
            instance = proxy.consumer(f"{topic}-{kind}", kind)
            instance.post("assignments", {"partitions": [place(topic)]})
            instance.post("positions", {"offsets": [place(topic, offset=1)]})
            found[kind] = instance.values(1)
            instance.delete()
        assert found == {"binary": [b64encode(value or b"").decode()], "avro": [{"a": "x"}]}


@pytest.fixture(scope="module")
def configured(kafka_cluster: KafkaCluster, registry_url: str) -> Iterator[Proxy]:
    """Before a Kafka with a configured registry."""
    with (
        running(engine=engine_of(kafka_cluster, registry_url)) as server,
        Proxy(server.rest_proxy_url) as made,
    ):
        yield made


@pytest.mark.parametrize("story", SCHEMA_STORIES, ids=lambda story: story.__name__)
def test_schemas_of_a_configured_registry(configured: Proxy, story: Callable[[Proxy], None]) -> None:
    story(configured)


def test_schemas_of_a_configured_registry_in_version_3(
    configured: Proxy, kafka_cluster: KafkaCluster, registry_url: str
) -> None:
    foreign, schema = Foreign(kafka_cluster, registry_url), avro("a")
    topic = f"t{uuid4().hex[:10]}"
    configured.produce(topic, [{"value": b64("first")}], "binary")
    number = foreign.register(f"{topic}-value", schema.data.decode())
    (cluster,) = configured.ask("GET", "/v3/clusters")["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}/topics/{topic}/records"

    def produce(status: int = 200, **value: Any) -> Any:
        answer = configured.ask("POST", path, json={"value": {**value, "data": {"a": "x"}}})
        assert answer["error_code"] == status, answer
        return answer.get("value")

    shown = {"type": "AVRO", "subject": f"{topic}-value", "schema_id": number, "schema_version": 1, "size": 8}
    for given in ({}, {"schema_id": number}, {"schema_version": 1}):
        assert produce(**given) == shown
    assert produce(type="AVRO", schema=schema.data.decode()) == shown
    assert produce(type="AVRO", schema=schema.data.decode(), subject=f"{topic}-other")["schema_id"] == number
    produce(422, schema_id=999_999)
    produce(422, schema_id=foreign.register(f"{topic}-x", '"string"'))
    expected = framed(number, encoded(schema, a="x"))
    found = {}
    for kind in ("binary", "avro"):
        instance = configured.consumer(f"{topic}-{kind}", kind)
        instance.post("assignments", {"partitions": [place(topic)]})
        instance.post("positions", {"offsets": [place(topic, offset=1)]})
        found[kind] = instance.values(5)
        instance.delete()
    assert found == {"binary": [b64encode(expected or b"").decode()] * 5, "avro": [{"a": "x"}] * 5}


def test_an_idle_instance_stays_a_member(
    proxy: AnyProcess, kafka_service: Service, kafka_cluster: KafkaCluster
) -> None:
    topic, group = kafka_service.new_topic(2), proxy.name("group")
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
    for number in range(4000):
        producer.produce(topic, b"x" * 1000, partition=number % 2)
    assert producer.flush(60) == 0
    instance = proxy.consumer(group, "binary")
    instance.subscribe(topic)
    theirs = client(kafka_cluster, group, topic)
    # It fetches nothing, and takes part all the same: the others do not wait for it.
    until(lambda: theirs.poll(0.1) or len(theirs.assignment()) == 1, 10)
    until(lambda: len(instance.get("assignments")["partitions"]) == 1)
    theirs.close()
    until(lambda: len(instance.get("assignments")["partitions"]) == 2)
    assert len(instance.values(4000)) == 4000
    instance.delete()
