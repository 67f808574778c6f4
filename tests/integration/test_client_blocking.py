"""The blocking client against a real server."""

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.support.waiting import received_by, until

import penstock
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, Running


def make_partitions(server: Address, topic: str, count: int) -> None:
    with HttpClient(server.url) as http:
        http.create_topic(TopicName.parse(topic), count)


@pytest.fixture
def client(server: Address) -> Iterator[penstock.Client]:
    with penstock.Client(server.pulsar, operation_timeout_seconds=30) as client:
        yield client


EARLIEST = penstock.InitialPosition.Earliest


def received(consumer: penstock.Consumer, count: int) -> list[penstock.Message]:
    messages = [consumer.receive(timeout_millis=30_000) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    return messages


def test_a_message_arrives_with_all_it_carries(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
    producer = client.create_producer(topic, producer_name="ann", properties={"who": "ann"})

    before_ms = int(time.time() * 1000)
    sent = producer.send(
        b"hello",
        properties={"colour": "red"},
        partition_key="k",
        ordering_key="o",
        event_timestamp=1234,
        sequence_id=7,
    )
    after_ms = int(time.time() * 1000)
    (message,) = received(consumer, 1)

    assert message.data() == message.value() == b"hello"
    assert message.properties() == {"colour": "red"}
    assert (message.partition_key(), message.ordering_key()) == ("k", "o")
    assert (message.event_timestamp(), message.sequence_id()) == (1234, 7)
    assert message.producer_name() == producer.producer_name() == "ann"
    assert message.topic_name() == producer.topic() == topic
    assert message.message_id() == sent
    assert message.redelivery_count() == 0
    assert before_ms <= message.publish_timestamp() <= after_ms
    assert producer.last_sequence_id() == 7
    assert not message.is_request


def test_batches_keep_their_order_and_tell_every_callback(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, block_if_queue_full=True, compression_type=penstock.CompressionType.LZ4
    )
    results: list[tuple[penstock.Result, penstock.MessageId | None]] = []
    for number in range(5000):
        producer.send_async(b"%d" % number, lambda result, message_id: results.append((result, message_id)))
    producer.flush()

    assert {result for result, _ in results} == {penstock.Result.Ok}
    ids = [message_id for _, message_id in results]
    assert ids == sorted(ids)
    assert max(message_id.batch_size() for message_id in ids) > 1
    reader = client.create_reader(topic, penstock.MessageId.earliest)
    assert [reader.read_next(30_000).data() for _ in range(5000)] == [b"%d" % n for n in range(5000)]
    assert not reader.has_message_available()


def test_a_full_queue_is_told(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, max_pending_messages=1, batching_enabled=True,
                                      batching_max_publish_delay_ms=20_000)  # fmt: skip
    results: list[penstock.Result] = []
    for _ in range(3):
        producer.send_async(b"x", lambda result, _: results.append(result))
    producer.flush()

    assert results.count(penstock.Result.ProducerQueueIsFull) >= 1
    assert results.count(penstock.Result.Ok) >= 1


def test_nothing_in_time_is_a_timeout(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")

    with pytest.raises(penstock.Timeout):
        consumer.receive(timeout_millis=10)
    with pytest.raises(TimeoutError):
        consumer.receive(timeout_millis=10)


def test_a_listener_is_called_and_can_rest(client: penstock.Client, topic: str) -> None:
    heard: list[bytes] = []
    all_heard = threading.Event()

    def listener(consumer: penstock.Consumer, message: penstock.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)
        if len(heard) == 10:
            all_heard.set()

    consumer = client.subscribe(topic, "sub", message_listener=listener)
    consumer.pause_message_listener()
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number)
    assert heard == []
    consumer.resume_message_listener()

    assert all_heard.wait(30)
    assert heard == [b"%d" % number for number in range(10)]


def test_a_refused_message_comes_again(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(
        topic, "sub", penstock.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50
    )
    client.create_producer(topic).send(b"again")

    first = consumer.receive(30_000)
    consumer.negative_acknowledge(first)
    second = consumer.receive(30_000)

    assert (first.redelivery_count(), second.redelivery_count()) == (0, 1)
    assert second.data() == b"again"


def test_an_exclusive_consumer_is_rewound_by_a_refusal(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", negative_ack_redelivery_delay_ms=20)
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(b"%d" % number)
    messages = [consumer.receive(30_000) for _ in range(3)]
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])

    assert [m.data() for m in received(consumer, 1)] == [b"3"]
    assert [m.data() for m in received(consumer, 2)] == [b"1", b"2"]


def test_a_message_not_acknowledged_in_time_comes_again(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", penstock.ConsumerType.Shared, unacked_messages_timeout_ms=100)
    client.create_producer(topic).send(b"slow")

    consumer.receive(30_000)
    again = consumer.receive(30_000)

    assert again.redelivery_count() == 1


def test_dead_letters(client: penstock.Client, topic: str) -> None:
    policy = penstock.ConsumerDeadLetterPolicy(2, initial_subscription_name="keep")
    consumer = client.subscribe(
        topic, "sub", penstock.ConsumerType.Shared, penstock.StringSchema(),
        negative_ack_redelivery_delay_ms=20, dead_letter_policy=policy,
    )  # fmt: skip
    producer = client.create_producer(topic, schema=penstock.StringSchema())
    where = producer.send("bad", partition_key="k", properties={"a": "b"})
    producer.send("good")
    deliveries = 0
    while deliveries < 3:
        message = consumer.receive(30_000)
        if message.value() == "good":
            consumer.acknowledge(message)
        else:
            deliveries += 1
            consumer.negative_acknowledge(message)

    dead = client.subscribe(f"{topic}-sub-DLQ", "keep", schema=penstock.StringSchema())
    message = dead.receive(30_000)

    assert (message.value(), message.partition_key()) == ("bad", "k")
    assert message.properties() == {"a": "b", "REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": str(where)}
    with pytest.raises(penstock.Timeout):
        consumer.receive(100)


def test_cumulative_acknowledgement(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
    for number in range(5):
        producer.send(b"%d" % number)
    messages = [consumer.receive(30_000) for _ in range(4)]
    consumer.acknowledge_cumulative(messages[2])
    consumer.close()

    again = client.subscribe(topic, "sub")
    assert [m.data() for m in received(again, 2)] == [b"3", b"4"]
    shared = client.subscribe(topic, "shared", penstock.ConsumerType.Shared)
    with pytest.raises(penstock.CumulativeAcknowledgementNotAllowedError):
        shared.acknowledge_cumulative(messages[0])


def test_messages_of_a_batch_are_acknowledged_one_by_one(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", penstock.ConsumerType.Shared, batch_index_ack_enabled=True)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(4):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    messages = [consumer.receive(30_000) for _ in range(4)]
    assert {message.message_id().batch_size() for message in messages} == {4}
    consumer.acknowledge(messages[1])
    consumer.close()

    again = client.subscribe(topic, "sub", penstock.ConsumerType.Shared)
    assert [m.data() for m in received(again, 3)] == [b"0", b"2", b"3"]


@pytest.mark.parametrize("queue", [0, 1, 1000])
def test_seek(client: penstock.Client, topic: str, queue: int) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(10)]
    consumer = client.subscribe(topic, "sub", initial_position=EARLIEST, receiver_queue_size=queue)
    assert consumer.receive(30_000).data() == b"0"

    consumer.seek(ids[5])
    assert consumer.receive(30_000).data() == b"6"
    consumer.seek(penstock.MessageId.earliest)
    assert consumer.receive(30_000).data() == b"0"
    consumer.seek(penstock.MessageId.latest)
    producer.send(b"new")
    assert consumer.receive(30_000).data() == b"new"
    assert consumer.get_last_message_id() > ids[-1]


def test_seek_to_a_time(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    time.sleep(0.02)  # the publish times are to differ: only the clock's going on makes them
    now = int(time.time() * 1000)
    producer.send(b"after")
    consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
    assert consumer.receive(30_000).data() == b"before"

    consumer.seek(now)

    assert consumer.receive(30_000).data() == b"after"


def test_readers_begin_where_they_are_told(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(5)]

    after = client.create_reader(topic, ids[2])
    at = client.create_reader(topic, ids[2], start_message_id_inclusive=True)
    end = client.create_reader(topic, penstock.MessageId.latest)
    last = client.create_reader(topic, penstock.MessageId.latest, start_message_id_inclusive=True)

    assert [after.read_next(30_000).data(), at.read_next(30_000).data()] == [b"3", b"2"]
    assert last.read_next(30_000).data() == b"4"
    assert not end.has_message_available()
    assert after.has_message_available()
    producer.send(b"new")
    assert end.has_message_available()
    assert end.read_next(30_000).data() == b"new"
    end.seek(ids[0])
    assert end.read_next(30_000).data() == b"1"


def test_partitions(client: penstock.Client, server: Address, topic: str) -> None:
    make_partitions(server, topic, 3)
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"key-{number % 5}")
    for _ in range(6):
        producer.send(b"none")

    messages = received(consumer, 36)

    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{n}" for n in range(3)]
    assert {m.topic_name() for m in messages} == set(client.get_topic_partitions(topic))
    assert {m.message_id().partition() for m in messages} == {0, 1, 2}
    keyed = [m for m in messages if m.partition_key()]
    for key in {m.partition_key() for m in keyed}:
        of_key = [m for m in keyed if m.partition_key() == key]
        assert len({m.topic_name() for m in of_key}) == 1
        numbers = [int(m.data()) for m in of_key]
        assert numbers == sorted(numbers)


def test_a_router_of_ones_own_and_partitions_connected_late(
    client: penstock.Client,
    server: Address,
    topic: str,
) -> None:
    make_partitions(server, topic, 4)
    producer = client.create_producer(
        topic,
        message_routing_mode=penstock.PartitionsRoutingMode.CustomPartition,
        message_router=lambda message, partitions: int(message.data()) % partitions,
        lazy_start_partitioned_producers=True,
    )
    ids = [producer.send(b"%d" % number) for number in range(8)]

    assert [message_id.partition() for message_id in ids] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_several_topics_and_patterns(client: penstock.Client, topic: str) -> None:

    names = [f"{topic}-{name}" for name in ("a", "b")]
    producers = [client.create_producer(name) for name in names]
    both = client.subscribe(names, "both")
    matching = client.subscribe(
        re.compile(f"{topic}-.*"),
        "matching",
        pattern_auto_discovery_period=0.2,  # type: ignore[arg-type]
    )
    for producer in producers:
        producer.send(producer.topic().encode())

    assert {m.data().decode() for m in received(both, 2)} == set(names)
    assert {m.data().decode() for m in received(matching, 2)} == set(names)
    client.create_producer(f"{topic}-c").send(b"late")
    assert received(matching, 1)[0].data() == b"late"


def test_delayed_messages(client: penstock.Client, server: Running, topic: str) -> None:
    consumer = client.subscribe(topic, "sub", penstock.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True)
    producer.new_message(b"later").deliver_after(timedelta(seconds=20)).send()
    producer.send(b"now")

    assert [m.data() for m in received(consumer, 1)] == [b"now"]
    server.advance(20_000)
    assert [m.data() for m in received(consumer, 1)] == [b"later"]


def test_large_messages_in_chunks(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    large = bytes(range(256)) * 48 * 1024
    with pytest.raises(penstock.MessageTooBig):
        client.create_producer(topic).send(large)
    producer = client.create_producer(topic, chunking_enabled=True)
    where = producer.send(large, properties={"large": "yes"})
    producer.send(b"small")

    message = consumer.receive(30_000)

    assert message.data() == large
    assert message.properties() == {"large": "yes"}
    assert message.message_id() == where
    consumer.acknowledge(message)
    assert consumer.receive(30_000).data() == b"small"
    consumer.close()
    again = client.subscribe(topic, "sub")
    assert again.receive(30_000).data() == b"small"


def test_key_shared_and_batches_by_key(client: penstock.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "sub", penstock.ConsumerType.KeyShared) for _ in range(2)]
    producer = client.create_producer(
        topic, batching_enabled=True, batching_type=penstock.BatchingType.KeyBased
    )
    for number in range(40):
        producer.send_async(b"%d" % number, None, partition_key=f"{number % 8}")
    producer.flush()
    seen: list[dict[str, list[int]]] = [{}, {}]
    for at, message in received_by(consumers, 40):
        seen[at].setdefault(message.partition_key(), []).append(int(message.data()))

    assert not seen[0].keys() & seen[1].keys()
    assert {**seen[0], **seen[1]} == {str(key): list(range(key, 40, 8)) for key in range(8)}


def test_batch_receive(client: penstock.Client, topic: str) -> None:
    full = client.subscribe(
        topic, "full", batch_receive_policy=penstock.ConsumerBatchReceivePolicy(3, -1, 60_000)
    )
    late = client.subscribe(
        topic, "late", batch_receive_policy=penstock.ConsumerBatchReceivePolicy(9, -1, 200)
    )
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(b"%d" % number)

    assert [m.data() for m in full.batch_receive()] == [b"0", b"1", b"2"]
    came: list[bytes] = []
    while len(came) < 4:  # in time for one batch, unless the machine is busy
        came += [m.data() for m in late.batch_receive()]
    assert came == [b"0", b"1", b"2", b"3"]
    assert late.batch_receive() == []


def test_errors_have_the_official_names(client: penstock.Client, topic: str) -> None:
    client.subscribe(topic, "sub")
    with pytest.raises(penstock.ConsumerBusy):
        client.subscribe(topic, "sub")
    client.create_producer(topic, "mine")
    with pytest.raises(penstock.ProducerBusy):
        client.create_producer(topic, "mine")
    with pytest.raises(penstock.InvalidTopicName):
        client.create_producer("a//b")
    with pytest.raises(TypeError):
        client.create_producer(topic, bogus=1)  # type: ignore[call-arg]
    with pytest.raises(penstock.InvalidUrl):
        penstock.Client("ftp://nowhere")
    closed = client.create_producer(topic)
    closed.close()
    with pytest.raises(penstock.AlreadyClosed):
        closed.send(b"late")


def test_exclusive_access(client: penstock.Client, topic: str) -> None:
    mode = penstock.ProducerAccessMode
    first = client.create_producer(topic, access_mode=mode.Exclusive)
    with pytest.raises(penstock.ProducerFenced):
        client.create_producer(topic, access_mode=mode.Exclusive)
    made: list[penstock.Producer] = []
    waiting = threading.Thread(
        target=lambda: made.append(client.create_producer(topic, access_mode=mode.WaitForExclusive))
    )
    waiting.start()
    time.sleep(0.1)  # for what should not happen: nothing tells that the broker lets it wait
    assert made == []
    first.close()
    waiting.join(30)
    made[0].send(b"mine now")


def test_unsubscribe(client: penstock.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic)
    consumer.unsubscribe()
    producer.send(b"unheard")
    again = client.subscribe(topic, "sub")

    with pytest.raises(penstock.Timeout):
        again.receive(100)
    with pytest.raises(penstock.AlreadyClosed):
        consumer.receive(100)


def test_a_callback_may_not_wait_for_the_client(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    refused: list[Exception] = []
    done = threading.Event()

    def callback(result: penstock.Result, message_id: penstock.MessageId | None) -> None:
        try:
            producer.send(b"inside")
        except penstock.OperationNotSupported as error:
            refused.append(error)
        done.set()

    producer.send_async(b"x", callback)

    assert done.wait(30)
    assert len(refused) == 1


def test_table_views_follow_a_topic(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=penstock.StringSchema())
    producer.send("one", partition_key="a")
    producer.send("two", partition_key="a")
    view = client.create_table_view(topic, schema=penstock.StringSchema())
    assert (view.get("a"), len(view)) == ("two", 1)
    seen: list[tuple[str, str]] = []
    view.for_each_and_listen(lambda key, value: seen.append((key, value)))
    producer.send("three", partition_key="b")
    until(lambda: len(seen) >= 2)

    assert seen == [("a", "two"), ("b", "three")]
    view.close()


def test_http_service_urls(server: Address, topic: str) -> None:
    with penstock.Client(server.url) as client:
        consumer = client.subscribe(topic, "sub")
        client.create_producer(topic).send(b"over http")

        assert consumer.receive(30_000).data() == b"over http"
