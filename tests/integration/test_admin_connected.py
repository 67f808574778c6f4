"""Who is connected, as the statistics name them: over Pulsar's protocol, over WebSockets and over REST."""

import re
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from tests.support.binary import Pulsar, pulsar_server
from websockets.sync.client import connect

SINCE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
ADDRESS = re.compile(r"/127\.0\.0\.1:\d+")


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


def stats(server: Pulsar, topic: str) -> Any:
    found = server.http.get(f"/admin/v2/{topic.replace('://', '/')}/stats")
    assert found.is_success
    return found.json()


def check(shown: Any, version: str, metadata: dict[str, str]) -> None:
    assert ADDRESS.fullmatch(shown["address"])
    assert SINCE.fullmatch(shown["connectedSince"])
    assert shown["clientVersion"].startswith(version)
    assert shown["metadata"] == metadata


def test_clients_of_pulsar_s_protocol(server: Pulsar) -> None:
    topic = server.topic()
    server.client.create_producer(topic, producer_name="p", properties={"of": "producer"})
    server.subscribe(topic, properties={"of": "consumer"})
    server.subscribe(topic, "k", pulsar.ConsumerType.KeyShared)
    found = stats(server, topic)
    (publisher,) = found["publishers"]
    assert publisher["producerName"] == "p"
    check(publisher, "Pulsar-CPP-", {"of": "producer"})
    (consumer,) = found["subscriptions"]["s"]["consumers"]
    check(consumer, "Pulsar-CPP-", {"of": "consumer"})
    assert found["subscriptions"]["k"]["keySharedMode"] == "AUTO_SPLIT"
    assert "keySharedMode" not in found["subscriptions"]["s"]


def test_clients_of_the_websocket_api(server: Pulsar) -> None:
    topic = server.topic()
    path = topic.replace("://", "/")
    base = f"{server.server.url.replace('http', 'ws')}/ws/v2"
    agent = "agent/1 " + "x" * 300
    with (
        connect(f"{base}/producer/{path}", user_agent_header="agent/1"),
        connect(f"{base}/consumer/{path}/s", user_agent_header=agent),
        connect(f"{base}/reader/{path}", user_agent_header="agent/1"),
    ):
        found = stats(server, topic)
        check(found["publishers"][0], "agent/1", {})
        shown = [one for s in found["subscriptions"].values() for one in s["consumers"]]
        assert len(shown) == 2
        for one in shown:
            check(one, "agent/1", {})
            assert len(one["clientVersion"]) <= 200  # the client chooses it


def test_consumers_over_rest(server: Pulsar) -> None:
    topic = server.topic()
    name = topic.rpartition("/")[2]
    made = server.http.post(
        f"/topics/public/default/{name}/subscription/s", json={}, headers={"user-agent": "curl/8"}
    )
    assert made.is_success
    found = stats(server, topic)
    check(found["subscriptions"]["s"]["consumers"][0], "curl/8", {})


def test_who_was_disconnected_by_an_unload_comes_back(server: Pulsar) -> None:
    topic = server.topic()
    producer = server.client.create_producer(topic)
    consumer = server.subscribe(topic)
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest)
    producer.send(b"a")
    before = stats(server, topic)
    path = f"/admin/v2/{topic.replace('://', '/')}"
    assert server.http.put(f"{path}/unload").status_code == 204
    producer.send(b"b")
    assert [reader.read_next(30_000).data() for _ in range(2)] == [b"a", b"b"]
    got = set()
    while got != {b"a", b"b"}:
        message = consumer.receive(30_000)
        got.add(message.data())
        consumer.acknowledge(message)
    assert stats(server, topic)["publishers"][0]["producerName"] == before["publishers"][0]["producerName"]


def test_a_rate_slows_the_official_client_and_keeps_its_order(server: Pulsar) -> None:
    topic = server.topic()
    path = f"/admin/v2/{topic.replace('://', '/')}"
    assert server.http.put(path).status_code == 204
    rate = {"publishThrottlingRateInMsg": 40}
    assert server.http.post(f"{path}/publishRate", json=rate).status_code == 204
    producer = server.client.create_producer(topic)
    wanted = [b"%d" % n for n in range(60)]
    for payload in wanted:
        producer.send_async(payload, None)
    producer.flush()
    dispatch = {"dispatchThrottlingRateInMsg": 40}
    assert server.http.post(f"{path}/dispatchRate", json=dispatch).status_code == 204
    consumer = server.subscribe(topic)
    assert [consumer.receive(30_000).data() for _ in wanted] == wanted
