"""Readers and seeking, as the official client does them."""

import time
from collections.abc import Iterator

import pulsar
import pytest
from pulsar import ConsumerType
from tests.support.binary import TIMEOUT_MS, Pulsar, nothing_more, pulsar_server, take
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


def read_all(reader: pulsar.Reader) -> list[int]:
    """Everything there is."""
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(TIMEOUT_MS).data()))
    return found


@pytest.mark.parametrize("batch", [False, True])
def test_a_reader_from_the_beginning(server: Pulsar, batch: bool) -> None:
    topic = server.topic()
    payloads = [b"%d" % n for n in range(30)]
    (server.publish_batch if batch else server.publish)(topic, *payloads)
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(reader) == list(range(30))
    assert not reader.has_message_available()
    server.publish(topic, b"30")
    assert read_all(reader) == [30]


def test_a_reader_of_an_empty_topic(server: Pulsar) -> None:
    reader = server.client.create_reader(server.topic(), pulsar.MessageId.earliest)
    assert not reader.has_message_available()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
def test_a_reader_from_a_message_on(server: Pulsar, inclusive: bool, batch: bool) -> None:
    topic = server.topic()
    ids = (server.publish_batch if batch else server.publish)(topic, *(b"%d" % n for n in range(30)))
    reader = server.client.create_reader(topic, ids[10], start_message_id_inclusive=inclusive)
    assert read_all(reader) == list(range(10 if inclusive else 11, 30))


def test_a_reader_of_what_comes(server: Pulsar) -> None:
    topic = server.topic()
    server.publish(topic, b"0")
    reader = server.client.create_reader(topic, pulsar.MessageId.latest)
    server.publish(topic, b"1")
    assert reader.read_next(TIMEOUT_MS).data() == b"1"


def test_readers_leave_nothing_behind(server: Pulsar) -> None:
    topic = server.topic()
    server.client.create_reader(topic, pulsar.MessageId.earliest).close()
    path = "/admin/v2/" + topic.replace("://", "/") + "/subscriptions"
    assert server.http.get(path).json() == []


@pytest.mark.parametrize("batch", [False, True])
def test_a_reader_seeks(server: Pulsar, batch: bool) -> None:
    topic = server.topic()
    ids = (server.publish_batch if batch else server.publish)(topic, *(b"%d" % n for n in range(30)))
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_all(reader) == list(range(30))
    reader.seek(ids[20])
    assert read_all(reader) == list(range(21, 30))
    reader.seek(pulsar.MessageId.earliest)
    assert read_all(reader) == list(range(30))


@pytest.mark.parametrize("inclusive", [False, True])
def test_a_consumer_seeks_to_a_message(server: Pulsar, inclusive: bool) -> None:
    topic = server.topic()
    ids = server.publish(topic, *(b"%d" % n for n in range(100)))
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive, start_message_id_inclusive=inclusive)
    assert len(take(consumer, 100)) == 100
    consumer.seek(ids[50])
    first = 50 if inclusive else 51
    assert [int(p) for p in take(consumer, 100 - first)] == list(range(first, 100))
    consumer.seek(pulsar.MessageId.earliest)
    assert len(take(consumer, 100)) == 100
    consumer.seek(pulsar.MessageId.latest)
    nothing_more(consumer)
    server.publish(topic, b"new")
    assert take(consumer, 1) == [b"new"]


def test_seeking_again_and_again_never_runs_dry(server: Pulsar) -> None:
    topic = server.topic()
    ids = server.publish_batch(topic, *(b"%d" % n for n in range(200)))
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive, receiver_queue_size=50)
    for _ in range(20):
        consumer.seek(ids[0])
        assert [int(p) for p in take(consumer, 30, ack=False)] == list(range(1, 31))


def test_a_consumer_seeks_to_a_time(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive)
    producer = server.client.create_producer(topic)
    for n in range(10):
        producer.send(b"%d" % n)
        time.sleep(0.005)  # another publish time, in milliseconds: only the clock's going on makes it
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    consumer.seek(messages[4].publish_timestamp())
    assert [int(p) for p in take(consumer, 6)] == list(range(4, 10))


def test_the_last_message_id(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    assert consumer.get_last_message_id().entry_id() == -1
    ids = server.publish(topic, b"1", b"2")
    assert consumer.get_last_message_id() == ids[1]
    batch = server.publish_batch(topic, b"3", b"4", b"5")
    last = consumer.get_last_message_id()
    assert (last.entry_id(), last.batch_index()) == (batch[2].entry_id(), 2)


# -- compaction


def compact(server: Pulsar, topic: str) -> None:
    path = "/admin/v2/" + topic.replace("://", "/") + "/compaction"
    assert server.http.put(path).status_code == 204
    until(lambda: server.http.get(path).json()["status"] == "SUCCESS")


def read_values(reader: pulsar.Reader) -> list[bytes]:
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(TIMEOUT_MS).data())
    return found


@pytest.mark.parametrize("batch", [False, True])
def test_a_compacted_topic_has_each_keys_last_value(server: Pulsar, batch: bool) -> None:
    topic = server.topic()
    path = "/admin/v2/" + topic.replace("://", "/") + "/compaction"
    producer = server.client.create_producer(topic, batching_enabled=batch)
    for n in range(20):
        producer.send_async(b"%d" % n, None, partition_key=f"key-{n % 4}")
    producer.send_async(b"", None, partition_key="key-3")
    producer.flush()
    assert server.http.get(path).json()["status"] == "NOT_RUN"
    compact(server, topic)
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert read_values(reader) == [b"16", b"17", b"18"]
    whole = server.client.create_reader(topic, pulsar.MessageId.earliest)
    assert len(read_values(whole)) == 21
    for n in (20, 21):
        producer.send(b"%d" % n, partition_key="key-0")
    assert read_values(reader) == [b"20", b"21"]
    consumer = server.subscribe(topic, "c", type=ConsumerType.Exclusive, is_read_compacted=True)
    assert take(consumer, 5) == [b"16", b"17", b"18", b"20", b"21"]
    compact(server, topic)
    again = server.client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert read_values(again) == [b"17", b"18", b"21"]


def test_compacting_everything_away(server: Pulsar) -> None:
    topic = server.topic()
    producer = server.client.create_producer(topic)
    producer.send(b"1", partition_key="k")
    producer.send(b"", partition_key="k")
    compact(server, topic)
    reader = server.client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert read_values(reader) == []
