"""Topics as the official client finds them: by name, by pattern, by partition, over HTTP."""

import re
from collections.abc import Iterator

import pulsar
import pytest
from tests.support.binary import TIMEOUT_MS, Pulsar, pulsar_server, take


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


def test_over_an_http_service_url(server: Pulsar) -> None:
    client = server.new_client(server.server.url)
    topic = server.topic()
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    client.create_producer(topic).send(b"by http")
    assert take(consumer, 1) == [b"by http"]
    partitioned = server.topic()
    server.http.put("/admin/v2/" + partitioned.replace("://", "/") + "/partitions", json=2)
    assert len(client.get_topic_partitions(partitioned)) == 2
    client.create_producer(partitioned).send(b"1")


def test_several_topics(server: Pulsar) -> None:
    topics = [server.topic() for _ in range(3)]
    consumer = server.subscribe(topics)
    for n, topic in enumerate(topics):
        server.publish(topic, b"%d" % n)
    messages = [consumer.receive(TIMEOUT_MS) for _ in topics]
    assert {m.topic_name(): m.data() for m in messages} == {t: b"%d" % n for n, t in enumerate(topics)}


@pytest.mark.parametrize("over", ["pulsar", "http"])
def test_a_pattern(server: Pulsar, over: str) -> None:
    """Topics that come later are found after a minute, which Python's client does not let one choose."""
    mark = f"wanted{over}"
    client = server.new_client(server.server.url if over == "http" else None)
    server.publish(f"persistent://public/default/{mark}-1", b"1")
    server.publish(f"persistent://public/default/{mark}-2", b"2")
    server.publish(f"persistent://public/default/un{mark}-1", b"no")
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{mark}-.*"),
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert take(consumer, 2) in ([b"1", b"2"], [b"2", b"1"])


def test_non_persistent_topics(server: Pulsar) -> None:
    topic = server.topic().replace("persistent", "non-persistent")
    consumer = server.subscribe(topic)
    server.publish(topic, b"1")
    assert take(consumer, 1) == [b"1"]


def test_topics_are_not_made_where_that_is_off() -> None:
    from penstock.broker.settings import BrokerSettings

    with pulsar_server(broker=BrokerSettings(auto_create_topics=False)) as strict:
        client = strict.new_client(operation_timeout_seconds=60)
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer("nowhere")
        with pytest.raises(pulsar.TopicNotFound):
            client.subscribe("nowhere", "s")
