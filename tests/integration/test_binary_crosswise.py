"""One log, many endpoints: written by one, read by another."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String, StringSchema
from tests.support.binary import TIMEOUT_MS, Pulsar, nothing_more, pulsar_server, take
from websockets.sync.client import connect


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


class Flight(Record):  # type: ignore[misc]
    carrier = String(required=True)
    number = Integer(required=True)


def rest_path(topic: str) -> str:
    return "/topics/" + topic.split("://")[1]


def test_written_by_rest_read_by_pulsar(server: Pulsar) -> None:
    topic = server.topic()
    body = {"messages": [{"value": f"text {n}", "key": f"k{n}"} for n in range(10)]}
    answer = server.http.post(rest_path(topic), json=body)
    assert answer.status_code == 200, answer.text
    consumer = server.subscribe(topic, schema=StringSchema())
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    assert [m.value() for m in messages] == [f"text {n}" for n in range(10)]
    assert [m.partition_key() for m in messages] == [f"k{n}" for n in range(10)]


def test_written_by_pulsar_read_by_rest(server: Pulsar) -> None:
    topic = server.topic()
    producer = server.client.create_producer(
        topic,
        schema=AvroSchema(Flight),
        batching_enabled=True,
        compression_type=pulsar.CompressionType.ZSTD,
    )
    for n in range(5):
        producer.send_async(Flight(carrier="UA", number=n), None)
    producer.flush()
    answer = server.http.get(rest_path(topic) + "/partitions/0/messages")
    assert answer.status_code == 200, answer.text
    values = [m["value"] for m in answer.json()["messages"]]
    assert values == [{"carrier": "UA", "number": n} for n in range(5)]


def test_written_by_pulsar_read_by_websocket(server: Pulsar) -> None:
    topic = server.topic()
    server.publish_batch(topic, *(b"%d" % n for n in range(5)))
    for found, n in zip(websocket_take(server, topic, 5), range(5), strict=True):
        assert b64decode(found["payload"]) == b"%d" % n


def websocket_take(server: Pulsar, topic: str, count: int, acked: int = 0) -> list[dict[str, Any]]:
    """The next messages over WebSocket; the first `acked` of them are acknowledged."""
    path = "/ws/v2/consumer/" + topic.replace("://", "/") + "/s"
    query = "?subscriptionType=Shared&subscriptionInitialPosition=Earliest"
    found = []
    with connect(server.server.ws + path + query, proxy=None) as socket:
        answers = 0
        while len(found) < count or answers < acked:
            frame = json.loads(socket.recv(10))
            if "result" in frame:
                answers += 1
                continue
            at = len(found)
            found.append(frame)
            if at < acked:
                done = {"type": "acknowledge", "messageId": frame["messageId"], "context": str(at)}
                socket.send(json.dumps(done))
    return found


def test_written_by_websocket_read_by_pulsar(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    with connect(server.server.ws + "/ws/v2/producer/" + topic.replace("://", "/"), proxy=None) as socket:
        for n in range(3):
            socket.send(json.dumps({"payload": b64encode(b"%d" % n).decode(), "properties": {"n": str(n)}}))
            assert json.loads(socket.recv(10))["result"] == "ok"
    assert take(consumer, 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("by_index", [False, True])
def test_one_subscription_by_two_endpoints(server: Pulsar, by_index: bool) -> None:
    """Part of a batch is acknowledged over WebSocket, the rest by a client that knows only whole entries."""
    topic = server.topic()
    server.publish_batch(topic, *(b"%d" % n for n in range(5)))
    websocket_take(server, topic, 2, acked=2)
    consumer = server.subscribe(topic, batch_index_ack_enabled=by_index)
    assert sorted(take(consumer, 3)) == [b"2", b"3", b"4"]
    consumer.close()
    again = server.subscribe(topic)
    nothing_more(again)


def test_ids_mean_the_same_at_every_endpoint(server: Pulsar) -> None:
    topic = server.topic()
    ids = server.publish_batch(topic, *(b"%d" % n for n in range(5)))
    text = b64encode(ids[2].serialize()).decode()
    answer = server.http.get(rest_path(topic) + "/partitions/0/messages", params={"message_id": text})
    assert [b64decode(m["value"]) for m in answer.json()["messages"]] == [b"3", b"4"]
