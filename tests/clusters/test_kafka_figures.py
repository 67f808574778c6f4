"""What three processes before a real Kafka say of topics and subscriptions, and how they end: at each of them the same."""

import contextlib
from collections import Counter
from uuid import uuid4

import pytest
from tests.support.service import WAIT_S, Service, admin, closed, take
from tests.support.waiting import until


@pytest.fixture
def topic() -> str:
    return f"t{uuid4().hex[:10]}"


def test_figures_are_right_at_every_process_and_add_up(kafka_service: Service, topic: str) -> None:
    kafka_service.ask(0, "PUT", admin(topic, "/partitions"), 204, json=3)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(kafka_service.consumer(at, topic)) for at in range(3)]
        stack.enter_context(kafka_service.producer(1, topic))  # publishes one
        for at in range(3):
            kafka_service.publish(at, topic, *map(str, range(7)))

        def shown(at: int) -> Counter[str]:
            said = kafka_service.ask(at, "GET", admin(topic, "/partitioned-stats"))
            one = said["subscriptions"]["s"]
            assert one["type"] == "Shared"
            (row,) = kafka_service.ask(
                at, "GET", f"/console/api/topics?namespace=public/default&search={topic}"
            )["topics"]
            cursor = kafka_service.ask(at, "GET", f"/topics/public/default/{topic}/subscription/s/cursor")[
                "cursor"
            ]
            assert "unanswered" not in said
            return Counter(
                backlog=one["msgBacklog"],
                unacked=one["unackedMessages"],
                consumers=len(one["consumers"]),
                out=one["msgOutCounter"],
                published=said["msgInCounter"],
                named=sum(1 for each in said["publishers"] if each["producerName"]),
                console=row["backlog"],
                console_consumers=row["consumers"],
                console_messages=row["messages"],
                console_producers=row["producers"],
                rest=cursor["backlog"],
                rest_consumers=len(cursor["consumers"]),
            )

        producers = len(kafka_service.ask(0, "GET", admin(topic, "/partitioned-stats"))["publishers"])
        assert producers >= 3
        wanted = Counter(
            backlog=22, unacked=22, consumers=9, out=22, published=22, named=producers, console=22,
            console_consumers=9, console_messages=22, console_producers=producers, rest=22, rest_consumers=3,
        )  # fmt: skip
        for at in range(3):
            until(lambda at=at: shown(at) == wanted, WAIT_S, said=lambda at=at: f"{at}: {shown(at)}")
        for metric, count in (
            ("pulsar_subscription_back_log", 22),
            ("pulsar_subscription_unacked_messages", 22),
            ("pulsar_subscription_consumers_count", 9),
            ("pulsar_subscription_msg_out_total", 22),
            ("pulsar_msg_backlog", 22),
            ("pulsar_in_messages_total", 22),
        ):
            assert kafka_service.sum(metric, topic) == count, (metric, kafka_service.figures(metric, topic))
        del sockets
    for at in range(3):
        until(
            lambda at=at: (
                not kafka_service.ask(at, "GET", admin(topic, "/stats"))["subscriptions"]["s"]["consumers"]
            )
        )
    assert kafka_service.sum("pulsar_subscription_back_log", topic) == 22, "without consumers, too"


def test_a_topic_is_in_use_whichever_process_has_the_clients(kafka_service: Service, topic: str) -> None:
    kafka_service.ask(0, "PUT", admin(topic), 204)
    with kafka_service.consumer(0, topic) as consumer:
        for at in range(3):
            kafka_service.ask(at, "DELETE", admin(topic), 412)
        kafka_service.publish(2, topic, "a")
        assert take(consumer, 1) == ["a"]
    with kafka_service.producer(1, topic) as producer, kafka_service.consumer(2, topic) as consumer:
        kafka_service.ask(0, "DELETE", admin(topic), 412)
        kafka_service.ask(0, "DELETE", admin(topic, "?force=true"), 204)
        assert closed(producer)
        assert closed(consumer)
    for at in range(3):
        until(
            lambda at=at: (
                topic not in str(kafka_service.ask(at, "GET", "/admin/v2/persistent/public/default"))
            )
        )
    kafka_service.ask(1, "PUT", admin(topic), 204)
    kafka_service.publish(0, topic, "old")
    with kafka_service.consumer(
        2, topic
    ) as consumer:  # its subscription was deleted with the topic: it begins at the end
        kafka_service.publish(0, topic, "new")
        assert take(consumer, 1) == ["new"]


def test_an_unload_is_a_pause_for_consumers_of_every_process(kafka_service: Service, topic: str) -> None:
    kafka_service.ask(0, "PUT", admin(topic), 204)
    for at in range(3):  # one of them is the owner
        with kafka_service.consumer(at, topic, "Exclusive") as socket:
            kafka_service.publish(0, topic, "a", "b")
            assert take(socket, 2) == ["a", "b"]
            until(lambda at=at: kafka_service.backlog(at, topic) == 0)
            kafka_service.ask((at + 1) % 3, "PUT", admin(topic, "/unload"), 204)
            kafka_service.publish(1, topic, "c")
            assert take(socket, 1) == ["c"]
            until(lambda at=at: kafka_service.backlog(at, topic) == 0)
