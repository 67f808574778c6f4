"""Subscriptions over Pulsar's protocol, as its official client uses them."""

from collections.abc import Iterator

import pulsar
import pytest
from pulsar import ConsumerType
from tests.support.binary import TIMEOUT_MS, Pulsar, nothing_more, pulsar_server, take
from tests.support.waiting import received_by, until


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


@pytest.fixture(autouse=True)
def clients(server: Pulsar) -> Iterator[None]:
    """What a test does to its connection, no other test feels."""
    yield
    server.close_clients()


@pytest.mark.parametrize(
    "type",
    [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared],
)
def test_every_type_gets_what_was_published_once(server: Pulsar, type: ConsumerType) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=type)
    payloads = [b"%d" % n for n in range(100)]
    server.publish(topic, *payloads[:50])
    server.publish_batch(topic, *payloads[50:])
    assert take(consumer, 100) == payloads
    nothing_more(consumer)


def test_an_exclusive_subscription_takes_no_second_consumer(server: Pulsar) -> None:
    topic = server.topic()
    server.subscribe(topic, type=ConsumerType.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        server.subscribe(topic, type=ConsumerType.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        server.subscribe(topic, type=ConsumerType.Shared)


def test_a_shared_subscription_spreads_messages(server: Pulsar) -> None:
    topic = server.topic()
    consumers = [server.subscribe(topic) for _ in range(2)]
    server.publish(topic, *(b"%d" % n for n in range(40)))
    found = [take(consumer, 20) for consumer in consumers]
    assert sorted(int(p) for part in found for p in part) == list(range(40))


def test_failover_goes_to_the_next_when_one_leaves(server: Pulsar) -> None:
    topic = server.topic()
    first = server.subscribe(topic, type=ConsumerType.Failover, consumer_name="a")
    second = server.subscribe(topic, type=ConsumerType.Failover, consumer_name="b")
    server.publish(topic, b"1", b"2", b"3")
    assert take(first, 1) == [b"1"]
    nothing_more(second)
    first.close()
    assert take(second, 2) == [b"2", b"3"]


def test_key_shared_keeps_the_order_of_each_key(server: Pulsar) -> None:
    topic = server.topic()
    consumers = [server.subscribe(topic, type=ConsumerType.KeyShared) for _ in range(3)]
    producer = server.client.create_producer(
        topic, batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased
    )
    for n in range(300):
        producer.send_async(b"%d" % n, None, partition_key=f"key-{n % 17}")
    producer.flush()
    owner: dict[str, int] = {}
    seen: dict[str, list[int]] = {}
    for at, message in received_by(consumers, 300):
        consumers[at].acknowledge(message)
        assert owner.setdefault(message.partition_key(), at) == at
        seen.setdefault(message.partition_key(), []).append(int(message.data()))
    assert sum(map(len, seen.values())) == 300
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert len(set(owner.values())) > 1


def test_key_shared_delivers_batches_of_many_keys_whole(server: Pulsar) -> None:
    topic = server.topic()
    consumers = [server.subscribe(topic, type=ConsumerType.KeyShared) for _ in range(2)]
    producer = server.client.create_producer(topic, batching_enabled=True)
    for n in range(60):
        producer.send_async(b"%d" % n, None, partition_key=f"key-{n}")
    producer.flush()
    found = []
    for at, message in received_by(consumers, 60):
        consumers[at].acknowledge(message)
        found.append(int(message.data()))
    assert sorted(found) == list(range(60))
    until_backlog(server, topic, 0)


def test_key_shared_ranges_are_refused_where_they_overlap(server: Pulsar) -> None:
    topic = server.topic()
    policy = pulsar.ConsumerKeySharedPolicy(
        key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=[(0, 65535)]
    )
    consumer = server.subscribe(topic, type=ConsumerType.KeyShared, key_shared_policy=policy)
    with pytest.raises(pulsar.PulsarException, match="ConsumerAssign"):
        server.subscribe(topic, type=ConsumerType.KeyShared, key_shared_policy=policy)
    server.publish(topic, b"1", b"2")
    assert take(consumer, 2) == [b"1", b"2"]


def until_backlog(server: Pulsar, topic: str, wanted: int, subscription: str = "s") -> None:
    """Wait until so many messages are not acknowledged: clients gather acknowledgements for a while."""
    path = "/admin/v2/" + topic.replace("://", "/") + "/stats"

    def backlog() -> int:
        found: int = server.http.get(path).json()["subscriptions"][subscription]["msgBacklog"]
        return found

    until(lambda: backlog() == wanted, said=lambda: f"a backlog of {backlog()}, not {wanted}")


def test_what_is_acknowledged_does_not_come_again(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    server.publish(topic, *(b"%d" % n for n in range(10)))
    assert len(take(consumer, 4)) == 4
    until_backlog(server, topic, 6)
    consumer.close()
    again = server.subscribe(topic)
    assert sorted(take(again, 6)) == [b"%d" % n for n in range(4, 10)]
    until_backlog(server, topic, 0)


def test_a_negative_acknowledgement_brings_it_again_with_a_count(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    server.publish(topic, b"once more")
    for count in range(3):
        message = consumer.receive(TIMEOUT_MS)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(TIMEOUT_MS))
    nothing_more(consumer)


def test_what_is_not_acknowledged_in_time_comes_again(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, unacked_messages_timeout_ms=10_000)
    server.publish(topic, b"1")
    consumer.receive(TIMEOUT_MS)
    consumer.redeliver_unacknowledged_messages()
    assert take(consumer, 1) == [b"1"]


def test_redelivery_of_everything_in_order(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive)
    payloads = [b"%d" % n for n in range(20)]
    server.publish(topic, *payloads)
    assert take(consumer, 10, ack=False) == payloads[:10]
    consumer.redeliver_unacknowledged_messages()
    found: list[bytes] = []
    while found[-20:] != payloads:  # the client keeps what is in its queue
        found += take(consumer, 1, ack=False)


def test_a_cumulative_acknowledgement(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive)
    server.publish(topic, *(b"%d" % n for n in range(10)))
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[6])
    until_backlog(server, topic, 3)
    consumer.close()
    again = server.subscribe(topic, type=ConsumerType.Exclusive)
    assert take(again, 3) == [b"7", b"8", b"9"]


@pytest.mark.parametrize("cumulative", [False, True])
def test_part_of_a_batch_is_acknowledged(server: Pulsar, cumulative: bool) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive, batch_index_ack_enabled=True)
    server.publish_batch(topic, *(b"%d" % n for n in range(100)))
    messages = [consumer.receive(TIMEOUT_MS) for _ in range(100)]
    if cumulative:
        consumer.acknowledge_cumulative(messages[69])
        left = list(range(70, 100))
    else:
        for n in range(0, 100, 3):
            consumer.acknowledge(messages[n])
        left = [n for n in range(100) if n % 3]
    until_backlog(server, topic, len(left))
    consumer.close()
    again = server.subscribe(topic, type=ConsumerType.Exclusive, batch_index_ack_enabled=True)
    assert [int(p) for p in take(again, len(left))] == left
    nothing_more(again)
    until_backlog(server, topic, 0)


def test_a_zero_queue_consumer(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, receiver_queue_size=0)
    server.publish(topic, b"1", b"2", b"3")
    for wanted in (b"1", b"2", b"3"):
        message = consumer.receive()
        assert message.data() == wanted
        consumer.acknowledge(message)


def test_a_long_backlog_flows_through_a_small_queue(server: Pulsar) -> None:
    topic = server.topic()
    payloads = [b"%d" % n for n in range(5000)]
    for at in range(0, 5000, 500):
        server.publish_batch(topic, *payloads[at : at + 500])
    consumer = server.subscribe(topic, type=ConsumerType.Exclusive, receiver_queue_size=50)
    assert take(consumer, 5000) == payloads
    until_backlog(server, topic, 0)


def test_unsubscribing_forgets_the_subscription(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    server.publish(topic, b"1")
    consumer.unsubscribe()
    path = "/admin/v2/" + topic.replace("://", "/") + "/subscriptions"
    assert server.http.get(path).json() == []
    again = server.subscribe(topic)
    assert take(again, 1) == [b"1"]


def test_unsubscribing_while_others_consume_is_refused(server: Pulsar) -> None:
    topic = server.topic()
    first = server.subscribe(topic)
    server.subscribe(topic)
    with pytest.raises(pulsar.PulsarException, match="BrokerMetadataError"):
        first.unsubscribe()


def test_dead_letters(server: Pulsar) -> None:
    topic, letters = server.topic(), server.topic("letters")
    consumer = server.subscribe(
        topic,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
            max_redeliver_count=2, dead_letter_topic=letters, initial_subscription_name="undertaker"
        ),
    )
    server.publish(topic, b"bad")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(TIMEOUT_MS))
    undertaker = server.subscribe(letters, "undertaker")
    message = undertaker.receive(TIMEOUT_MS)
    assert message.data() == b"bad"
    assert message.properties()["REAL_TOPIC"] == topic
    undertaker.acknowledge(message)
    until_backlog(server, topic, 0)


def test_a_delayed_message_waits(server: Pulsar) -> None:
    import datetime

    topic = server.topic()
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic)
    producer.send(b"later", deliver_after=datetime.timedelta(seconds=20))
    producer.send(b"now")
    assert take(consumer, 1) == [b"now"]
    nothing_more(consumer)
    server.server.advance(20_000)
    assert take(consumer, 1) == [b"later"]


def test_the_end_of_a_topic(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic)
    producer.send(b"last")
    path = "/admin/v2/" + topic.replace("://", "/") + "/terminate"
    assert server.http.post(path).status_code == 200
    assert take(consumer, 1) == [b"last"]
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"too late")
    with pytest.raises(pulsar.TopicTerminated):
        server.client.create_producer(topic)


def test_a_deleted_topic_closes_who_uses_it_and_comes_back(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic)
    producer = server.client.create_producer(topic)
    producer.send(b"gone")
    assert take(consumer, 1) == [b"gone"]
    path = "/admin/v2/" + topic.replace("://", "/")
    assert server.http.delete(path, params={"force": "true"}).status_code == 204
    producer.send(b"new")
    assert take(consumer, 1) == [b"new"]
