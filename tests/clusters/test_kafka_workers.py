"""Several processes of one server before a real Kafka: `penstock serve --workers`, as its users start it."""

import base64
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until
from tests.support.workers import WAIT_S, WORKERS, Replier, Server, publish, rest, serve_instance, serving

RECEIVED_S: Final = 150.0  # clients that cannot subscribe yet wait longer each time


def flags_of(cluster: KafkaCluster, folder: Path) -> Sequence[str]:
    """With topics of its own for what is kept."""
    name = f"__{uuid4().hex[:10]}"
    config = folder / "penstock.toml"
    config.write_text(
        f'[engine]\ndocuments_topic = "{name}"\nreplies_topic = "{name}-replies"\n'
        f'journals_topic = "{name}-journals"\nlearned_ms = 1\n'
    )
    return "--engine", cluster.service_url, "--config", str(config)


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("workers")
    with serving(folder, *flags_of(kafka_cluster, folder), "--pulsar", "127.0.0.1:0") as started:
        until(lambda: len(started.own_urls) >= WORKERS)
        yield started


@pytest.fixture
def topic(server: Server) -> str:
    name = f"workers-{uuid4().hex[:10]}"
    made = httpx.put(f"{server.url}/admin/v2/persistent/public/default/{name}", timeout=60)
    assert made.status_code == 204, made.text
    return name


def test_any_worker_serves_a_consumer_instance(server: Server, topic: str) -> None:
    serve_instance(server, topic, f"s-{topic}")


def test_an_instance_of_a_worker_that_was_killed_is_gone(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    topic = f"workers-{uuid4().hex[:10]}"
    with serving(tmp_path, *flags_of(kafka_cluster, tmp_path), "--pulsar", "off") as server:
        until(lambda: len(server.own_urls) >= WORKERS)
        publish(server.url, topic, "a")
        subscription = f"s-{topic}"
        first = server.own_urls[0]
        wanted = {"initial_position": "earliest", "subscription_type": "Shared"}
        made = httpx.post(f"{rest(first, topic)}/subscription/{subscription}", json=wanted, timeout=60).json()
        for pid in server.pids[:WORKERS]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(server.own_urls) >= 2 * WORKERS, said=lambda: server.events("a worker ended"))
        path = f"{rest(server.url, topic)}/subscription/{subscription}"
        gone = httpx.get(f"{path}/consumer/{made['id']}/messages", timeout=60)
        assert (gone.status_code, gone.json()["error_code"]) == (404, 40403), gone.text
        again = httpx.post(path, json=wanted, timeout=60).json()
        found: list[dict[str, str]] = []
        while not found:
            page = httpx.get(f"{again['base_uri']}/messages", params={"timeout": 10_000}, timeout=60)
            found = page.json()["messages"]
        assert [one["value"] for one in found] == ["a"]


def ask(url: str, topic: str, text: str, timeout_ms: int = 30_000) -> httpx.Response:
    return httpx.post(
        f"{rest(url, topic)}/request", params={"timeout": timeout_ms}, json={"value": text}, timeout=60
    )


def test_a_reply_crosses_from_one_worker_to_another(server: Server, topic: str) -> None:
    one, other = server.own_urls[:WORKERS]
    replier = Replier(one, topic)
    for url in (other, one):
        for text, is_error in (("hello", False), ("rorre", True)):
            answer = ask(url, topic, text).json()
            assert base64.b64decode(answer["replyContent"]).decode() == text[::-1]
            assert answer["isErrorResult"] is is_error
    path = f"/ws/v2/producer/persistent/public/default/{topic}"
    asking = websocket.create_connection(other.replace("http://", "ws://") + path, timeout=WAIT_S)
    for number in range(20):
        payload = base64.b64encode(b"%d" % number).decode()
        asking.send(json.dumps({"payload": payload, "requestTimeoutMillis": 30_000, "context": str(number)}))
    frames = [json.loads(asking.recv()) for _ in range(40)]
    replies = {frame["context"]: frame for frame in frames if frame.get("type") == "reply"}
    texts = {base64.b64decode(replies[str(n)]["replyContent"]).decode()[::-1] for n in range(20)}
    assert texts == set(map(str, range(20)))
    asking.close()
    replier.socket.close()


def replied(consumer: Consumer, producer: Producer) -> Message:
    """Answer one request as any client of Kafka's can."""
    request = consumer.poll(WAIT_S)
    assert request is not None
    assert request.error() is None, request.error()
    headers = dict(request.headers())
    topic, _, partition = headers["penstock-reply-to"].decode().rpartition(":")
    number = {"penstock-correlation-id": headers["penstock-correlation-id"]}
    # Another's reply in the same partition, and one that says nothing, are passed over.
    producer.produce(topic, b"no", partition=int(partition), headers={"penstock-correlation-id": b"0-1"})
    producer.produce(topic, b"no", partition=int(partition))
    producer.produce(topic, request.value().upper(), partition=int(partition), headers=number)
    assert producer.flush(WAIT_S) == 0
    return request


def test_a_plain_client_of_kafka_replies_with_a_record(
    server: Server, topic: str, kafka_cluster: KafkaCluster
) -> None:
    given = {"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0}
    consumer, producer = Consumer({**given, "group.id": f"g-{topic}"}), Producer(given)
    consumer.assign([TopicPartition(topic, 0, 0)])
    serving = threading.Thread(target=replied, args=(consumer, producer))
    serving.start()
    try:
        answer = ask(server.own_urls[1], topic, "ask")
    finally:
        serving.join()
        consumer.close()
    assert base64.b64decode(answer.json()["replyContent"]) == b"ASK", answer.text


def test_a_request_that_nobody_answers_ends_in_time(server: Server, topic: str) -> None:
    answer = ask(server.url, topic, "?", 300)
    assert (answer.status_code, answer.json()["error_code"]) == (504, 50401)


@pytest.mark.timeout(500)
def test_clients_of_pulsar_at_several_processes_share_a_topic(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A lookup leads them to the owner of each partition; at the address of a single process they consume as well."""
    topic, count = f"workers-{uuid4().hex[:10]}", 40
    flags = flags_of(kafka_cluster, tmp_path)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with (
        serving(tmp_path, *flags, "--pulsar", "127.0.0.1:0") as server,
        ExitStack() as clients,
    ):
        made = httpx.put(
            f"{server.url}/admin/v2/persistent/public/default/{topic}/partitions", json=4, timeout=60
        )
        assert made.status_code == 204, made.text
        received: list[bytes] = []

        def arrived(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            consumer.acknowledge(message)
            received.append(message.data())

        for _ in range(4):
            client = pulsar.Client(server.pulsar, logger=quiet)
            clients.callback(client.close)
            client.subscribe(
                topic,
                f"s-{topic}",
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
                message_listener=arrived,
            )
        publishing = pulsar.Client(server.pulsar, logger=quiet)
        clients.callback(publishing.close)
        producer = publishing.create_producer(topic, batching_enabled=True)
        for number in range(count):
            producer.send_async(b"%d" % number, lambda *_: None, partition_key=str(number))
        producer.flush()
        until(lambda: len(set(received)) == count, RECEIVED_S, said=lambda: received)

        until(lambda: len(server.own_pulsar_urls) >= WORKERS)
        by_process: dict[str, set[bytes]] = {}

        def receives(url: str) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
            by_process[url] = set()

            def of_one(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
                consumer.acknowledge(message)
                by_process[url].add(message.data())

            return of_one

        for url in server.own_pulsar_urls:  # all of one partition, which one process owns
            client = pulsar.Client(url, logger=quiet)
            clients.callback(client.close)
            client.subscribe(
                f"{topic}-partition-1",
                f"one-{topic}",
                consumer_type=pulsar.ConsumerType.Shared,
                message_listener=receives(url),
            )
        producer = publishing.create_producer(f"{topic}-partition-1")

        def all_received() -> bool:
            producer.send(uuid4().bytes)
            return all(by_process.values())

        until(all_received, RECEIVED_S, said=lambda: by_process)
