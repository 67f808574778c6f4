"""Publishing over Pulsar's protocol, as its official client does it."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerType, ProducerAccessMode
from tests.support.binary import TIMEOUT_MS, Pulsar, nothing_more, pulsar_server, take


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


COMPRESSIONS = ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_compressed_batches(server: Pulsar, name: str) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    payloads = [b"payload %d " % n * 20 for n in range(200)]
    kind = getattr(pulsar.CompressionType, name)
    ids = server.publish_batch(topic, *payloads, compression_type=kind)
    assert len({str(message_id) for message_id in ids}) == 200
    assert take(consumer, 200) == payloads


def test_what_a_message_carries(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic, producer_name="named")
    sent = producer.send(
        b"value",
        properties={"a": "1", "b": "ü"},
        partition_key="key",
        ordering_key="order",
        event_timestamp=1_600_000_000_000,
        sequence_id=7,
    )
    message = consumer.receive(TIMEOUT_MS)
    assert message.message_id() == sent
    assert message.properties() == {"a": "1", "b": "ü"}
    assert message.partition_key() == "key"
    assert message.ordering_key() == "order"
    assert message.event_timestamp() == 1_600_000_000_000
    assert message.producer_name() == "named"
    assert producer.last_sequence_id() == 7


def test_a_name_in_use(server: Pulsar) -> None:
    topic = server.topic()
    first = server.client.create_producer(topic, producer_name="me")
    hasty = server.new_client(operation_timeout_seconds=1)
    with pytest.raises(pulsar.PulsarException):
        hasty.create_producer(topic, producer_name="me")
    first.close()
    server.client.create_producer(topic, producer_name="me").send(b"1")


def test_many_in_flight_come_in_order(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive)
    producer = server.client.create_producer(topic, block_if_queue_full=True)
    got: list[str] = []
    for n in range(3000):
        producer.send_async(b"%d" % n, lambda result, message_id: got.append(str(message_id)))
    producer.flush()
    assert got == sorted(got, key=lambda text: int(text.strip("()").split(",")[1]))
    assert [int(p) for p in take(consumer, 3000)] == list(range(3000))


def test_a_message_of_20_mb_in_chunks(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    payload = bytes(range(256)) * (20 * 1024 * 4)
    producer = server.client.create_producer(topic, chunking_enabled=True)
    producer.send(b"before")
    producer.send(payload)
    producer.send(b"after")
    found = take(consumer, 3)
    assert found[0] == b"before"
    assert sorted(map(len, found)) == sorted((6, len(payload), 5))
    assert payload in found


def test_a_message_too_large_is_refused_by_the_client(server: Pulsar) -> None:
    producer = server.client.create_producer(server.topic())
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(6 * 1024 * 1024))
    producer.send(bytes(5 * 1024 * 1024 - 1000))


def test_end_to_end_encryption(server: Pulsar, tmp_path: Path) -> None:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", private, "2048"], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "rsa", "-in", private, "-pubout", "-out", public], check=True, capture_output=True
    )
    reader = pulsar.CryptoKeyReader(str(public), str(private))
    topic = server.topic()
    consumer = server.subscribe(topic, crypto_key_reader=reader)
    blind = server.subscribe(topic, "blind", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME)
    payloads = [b"secret %d" % n for n in range(20)]
    server.publish_batch(topic, *payloads, encryption_key="k", crypto_key_reader=reader)
    server.publish(topic, b"alone", encryption_key="k", crypto_key_reader=reader)
    assert take(consumer, 21) == [*payloads, b"alone"]
    sealed = blind.receive(TIMEOUT_MS)
    assert b"secret" not in sealed.data()


def test_partitions(server: Pulsar) -> None:
    topic = server.topic()
    path = "/admin/v2/" + topic.replace("://", "/") + "/partitions"
    assert server.http.put(path, json=3).status_code == 204
    assert server.client.get_topic_partitions(topic) == [f"{topic}-partition-{n}" for n in range(3)]
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic)
    ids = [producer.send(b"%d" % n, partition_key=f"key-{n}") for n in range(60)]
    assert {message_id.partition() for message_id in ids} == {0, 1, 2}
    assert sorted(int(p) for p in take(consumer, 60)) == list(range(60))
    assert (
        producer.send(b"x", partition_key="same").partition()
        == producer.send(b"y", partition_key="same").partition()
    )


# -- who may publish


def test_an_exclusive_producer_is_alone(server: Pulsar) -> None:
    topic = server.topic()
    alone = server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    hasty = server.new_client(operation_timeout_seconds=1)
    with pytest.raises(pulsar.PulsarException):
        hasty.create_producer(topic)
    alone.send(b"1")
    alone.close()
    server.client.create_producer(topic).send(b"2")


def test_exclusive_is_refused_where_others_publish(server: Pulsar) -> None:
    topic = server.topic()
    server.client.create_producer(topic).send(b"1")
    with pytest.raises(pulsar.ProducerFenced):
        server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)


def test_waiting_for_exclusive_access(server: Pulsar) -> None:
    topic = server.topic()
    first = server.client.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
    made: list[pulsar.Producer] = []
    other = server.new_client()
    waiting = threading.Thread(
        target=lambda: made.append(
            other.create_producer(topic, access_mode=ProducerAccessMode.WaitForExclusive)
        )
    )
    waiting.start()
    waiting.join(0.3)
    assert not made
    first.send(b"1")
    first.close()
    waiting.join(30)
    made[0].send(b"2")


def test_fencing_takes_the_topic_away(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    first = server.client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    first.send(b"1")
    other = server.new_client()
    second = other.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
    second.send(b"2")
    with pytest.raises(pulsar.PulsarException):
        first.send(b"fenced")
    assert take(consumer, 2) == [b"1", b"2"]
    nothing_more(consumer)


# -- once and not twice


def test_repeats_are_dropped_where_deduplication_is_on(server: Pulsar) -> None:
    assert server.http.put("/admin/v2/namespaces/public/once").status_code == 204
    switched = server.http.post("/admin/v2/namespaces/public/once/deduplication", json=True)
    assert switched.status_code == 204, switched.text
    topic = "persistent://public/once/t"
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic, producer_name="p")
    first = producer.send(b"1", sequence_id=1)
    again = producer.send(b"1", sequence_id=1)
    assert again == first
    producer.send(b"2", sequence_id=2)
    producer.close()
    back = server.client.create_producer(topic, producer_name="p")
    assert back.last_sequence_id() == 2
    back.send(b"2", sequence_id=2)
    back.send(b"3")
    assert take(consumer, 3) == [b"1", b"2", b"3"]
    nothing_more(consumer)


def test_chunks_count_once_where_deduplication_is_on(server: Pulsar) -> None:
    server.http.put("/admin/v2/namespaces/public/chunked")
    server.http.post("/admin/v2/namespaces/public/chunked/deduplication", json=True)
    topic = "persistent://public/chunked/t"
    consumer = server.subscribe(topic)
    payload = bytes(11 * 1024 * 1024)
    producer = server.client.create_producer(topic, producer_name="p", chunking_enabled=True)
    producer.send(payload, sequence_id=5)
    producer.send(payload, sequence_id=5)
    producer.send(b"next", sequence_id=6)
    assert list(map(len, take(consumer, 2))) == [len(payload), 4]
    nothing_more(consumer)
