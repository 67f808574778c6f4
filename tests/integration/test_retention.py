"""Retention and quotas of a real server, seen by the official Pulsar client, WebSockets, REST and Kafka REST."""

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pulsar
import pytest
from tests.support import waiting
from tests.support.binary import TIMEOUT_MS, Pulsar, pulsar_server, take
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from penstock.broker.settings import BrokerSettings

NOTHING = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server(broker=BrokerSettings(keep_check_ms=20, quota_hold_ms=1500)) as made:
        yield made


def admin(topic: str) -> str:
    return "/admin/v2/" + topic.replace("://", "/")


def call(server: Pulsar, method: str, path: str, body: Any = None, **params: str) -> Any:
    response = server.http.request(method, path, json=body, params=params)
    assert response.is_success, f"{response.status_code} {response.text}"
    return response.json() if response.content else None


def quota(server: Pulsar, topic: str, limit: int, policy: str) -> None:
    call(server, "POST", f"{admin(topic)}/backlogQuota", {"limitSize": limit, "policy": policy})


def stats(server: Pulsar, topic: str) -> Any:
    return call(server, "GET", f"{admin(topic)}/stats")


def until(server: Pulsar, topic: str, wanted: Any) -> Any:
    """The topic's stats, once they are as wanted."""
    waiting.until(lambda: wanted(stats(server, topic)), said=lambda: stats(server, topic))
    return stats(server, topic)


def test_a_producer_is_refused_and_comes_back(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    quota(server, topic, 2000, "producer_exception")
    producer = server.client.create_producer(topic)
    producer.send(b"x" * 2000)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        producer.send(b"beyond")
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        server.client.create_producer(topic)
    take(consumer, 1)
    until(server, topic, lambda found: found["backlogSize"] == 0)
    assert server.publish(topic, b"again")
    assert take(consumer, 1) == [b"again"]


def test_a_producer_is_held_until_there_is_room(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    quota(server, topic, 2000, "producer_request_hold")
    producer = server.client.create_producer(topic, send_timeout_millis=4 * TIMEOUT_MS)
    producer.send(b"x" * 2000)
    done = threading.Event()
    results: list[pulsar.Result] = []

    def sent(result: pulsar.Result, message_id: Any) -> None:
        results.append(result)
        done.set()

    producer.send_async(b"held", sent)
    assert not done.wait(0.3)  # nothing says that it is held; it is right however long it takes
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededError):
        server.client.create_producer(topic)
    take(consumer, 1)
    assert done.wait(3 * TIMEOUT_MS / 1000)
    assert results == [pulsar.Result.Ok]
    assert take(consumer, 1) == [b"held"]


def test_a_hold_that_is_too_long_does_not_lose_what_the_client_kept(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    quota(server, topic, 2000, "producer_request_hold")
    producer = server.client.create_producer(topic, send_timeout_millis=4 * TIMEOUT_MS)
    producer.send(b"x" * 2000)
    done = threading.Event()
    producer.send_async(b"held", lambda result, message_id: done.set())
    until(server, topic, lambda found: not found["publishers"])  # disconnected: it was held for long enough
    assert not done.is_set()
    take(consumer, 1)
    assert done.wait(3 * TIMEOUT_MS / 1000)
    assert take(consumer, 1) == [b"held"]


def test_the_slowest_subscription_is_moved_on(server: Pulsar) -> None:
    topic = server.topic()
    slow = server.subscribe(topic, "slow")
    quota(server, topic, 20_000, "consumer_backlog_eviction")
    call(server, "POST", f"{admin(topic)}/retention", NOTHING)
    for number in range(100):
        server.publish(topic, b"%03d" % number + b"x" * 1000)
    found = until(server, topic, lambda s: s["backlogSize"] < 20_000 and s["storageSize"] < 20_000)
    assert 0 < found["subscriptions"]["slow"]["msgBacklog"] < 20
    slow.close()
    fresh = server.subscribe(topic, "slow")
    backlog = found["subscriptions"]["slow"]["msgBacklog"]
    assert take(fresh, backlog)[-1].startswith(b"099")


def test_other_endpoints_wait_and_then_say_why(server: Pulsar) -> None:
    topic = server.topic()
    name = topic.rpartition("/")[2]
    server.subscribe(topic)
    quota(server, topic, 2000, "producer_request_hold")
    url = f"{server.server.url.replace('http', 'ws')}/ws/v2/producer/persistent/public/default/{name}"
    message = json.dumps({"payload": b64encode(b"y").decode()})
    with connect(url) as socket:
        server.publish(topic, b"x" * 2000)
        socket.send(message)
        answer = json.loads(socket.recv(TIMEOUT_MS / 1000))
        assert answer["result"].startswith("send-error")
        assert "quota" in answer["errorMsg"]
    with pytest.raises(InvalidStatus) as caught, connect(url):
        pass
    assert caught.value.response.status_code == 503
    body = {"messages": [{"value": "y"}]}
    response = server.http.post(f"/topics/public/default/{name}", json=body, timeout=60)
    assert (response.status_code, response.json()["error_code"]) == (503, 50304)
    assert stats(server, topic)["subscriptions"]["s"]["msgBacklog"] == 1


def test_what_was_trimmed_is_gone_and_says_so(server: Pulsar) -> None:
    topic = server.topic()
    name = topic.rpartition("/")[2]
    payloads = [b"message %02d" % number for number in range(20)]
    server.publish(topic, *payloads)
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=1)
    assert reader.read_next(TIMEOUT_MS).data() == payloads[0]
    kafka = f"/kafka/topics/{name}/0"
    position = 0
    for _ in range(12):
        answer = server.http.get(kafka, headers={"range": f"bytes={position}-{position}"})
        assert answer.status_code == 206, answer.text
        position = int(answer.headers["content-range"].split("-")[1].split("/")[0]) + 1
    server.subscribe(topic)
    call(server, "POST", f"{admin(topic)}/subscription/s/skip/12")
    call(server, "POST", f"{admin(topic)}/retention", NOTHING)
    size = until(server, topic, lambda found: found["messages"] == 8)["storageSize"]
    assert size > 0

    states = call(server, "GET", f"{admin(topic)}/internalStats")
    assert (states["firstOffset"], states["nextOffset"]) == (12, 20)
    offsets = call(server, "GET", f"/topics/public/default/{name}/partitions/0/offsets")
    assert (offsets["earliest"], offsets["latest"]) == (12, 20)
    read = call(server, "GET", f"/topics/public/default/{name}/partitions/0/messages", offset="12")
    assert [message["offset"] for message in read["messages"]] == list(range(12, 20))
    gone = server.http.get(kafka, headers={"range": "bytes=0-0"})
    still = server.http.get(kafka, headers={"range": f"bytes={position}-{position}"})
    assert still.status_code == 206
    assert payloads[12] in still.content
    assert payloads[0] not in gone.content
    rest: list[bytes] = []  # what the client had fetched before, then what is left
    while payloads[-1] not in rest:
        rest.append(reader.read_next(TIMEOUT_MS).data())
    assert rest[-8:] == payloads[12:]
    assert len(rest) <= 10


def test_a_delayed_message_outlives_retention(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    server.publish(topic, *[b"before"] * 5)
    producer = server.client.create_producer(topic)
    producer.send(b"later", deliver_after=timedelta(seconds=5))
    producer.close()
    server.publish(topic, *[b"after"] * 5)
    call(server, "POST", f"{admin(topic)}/retention", NOTHING)
    assert take(consumer, 10) == [b"before"] * 5 + [b"after"] * 5
    until(server, topic, lambda found: found["messages"] <= 6)
    assert take(consumer, 1) == [b"later"]
    until(server, topic, lambda found: found["messages"] == 0)


def test_messages_expire(server: Pulsar) -> None:
    topic = server.topic()
    server.subscribe(topic)
    server.publish(topic, b"x")
    call(server, "POST", f"{admin(topic)}/messageTTL", messageTTL="1")
    until(server, topic, lambda found: found["subscriptions"]["s"]["msgBacklog"] == 0)


def test_the_most_producers(server: Pulsar) -> None:
    topic = server.topic()
    server.client.create_producer(topic)
    call(server, "POST", f"{admin(topic)}/maxProducers", 1)
    with pytest.raises(pulsar.ProducerBusy):
        server.client.create_producer(topic)
    call(server, "POST", f"{admin(topic)}/maxConsumers", 1)
    server.subscribe(topic, "one")
    with pytest.raises(pulsar.ConsumerBusy):
        server.new_client().subscribe(topic, "two")
