"""Three processes before a real Kafka whose clocks differ by 2 minutes and by 4: one is right, one ahead, one behind.

Who owns a partition, which cursor counts and which process is alive depends on no wall clock. A time that one process writes and
another one compares (a delayed delivery) is wrong by the difference of the two, and by nothing else.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.preloaded import needs_preloading, shifted_clock
from tests.support.service import WAIT_S, Service, admin, flags_before, service
from tests.support.service_load import Load
from tests.support.waiting import until
from tests.support.workers import Replier

pytestmark = needs_preloading

SHIFTS_S = (0, 120, -120)  # of the processes
DELAY_S = 3.0
BACKLOG = "pulsar_subscription_back_log"  # reported by the owner of a partition


@pytest.fixture(scope="module")
def three(kafka_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    own = {number: shifted_clock(shift) for number, shift in enumerate(SHIFTS_S) if shift}
    with service(folder, flags_before(kafka_cluster), own=own) as made:
        yield made


def test_partitions_move_between_processes_with_different_clocks(three: Service) -> None:
    """Each process is killed or stopped once, so that each one takes partitions of another one over."""
    with Load(three) as load:
        load.goes_on()
        for number in range(3):
            if number == 1:
                assert three.nodes[number].terminate() == 0
            else:
                three.nodes[number].kill()
            load.goes_on()
            three.start(number)
            load.goes_on()
        three.know_one_another()


def test_each_process_has_its_clock(three: Service) -> None:
    topic = three.new_topic()
    with three.consumer(0, topic) as socket:
        for at, shift in enumerate(SHIFTS_S):
            three.publish(at, topic, "a")
            published = datetime.fromisoformat(json.loads(socket.recv(WAIT_S))["publishTime"])
            assert abs((published - datetime.now(UTC)).total_seconds() - shift) < 50


def topics_by_owner(three: Service) -> list[str]:
    """A topic with a subscription `s` for each process, which owns it."""
    found: dict[int, str] = {}
    while len(found) < 3:
        topic = three.new_topic()
        three.ask(0, "PUT", admin(topic, "/subscription/s"), 204, json="earliest")
        until(lambda topic=topic: three.figures(BACKLOG, topic))
        (label,) = three.figures(BACKLOG, topic)
        found.setdefault(int(label.split()[0]), topic)
    return [found[number] for number in range(3)]


def test_a_delayed_message_comes_at_its_time(three: Service) -> None:
    """By the owner's clock; so the delay of a publisher whose clock is behind is that much shorter."""
    topics = topics_by_owner(three)

    def delay(publisher: int, owner: int) -> float:
        """Seconds from the publishing of a message until it comes."""
        difference = SHIFTS_S[owner] - SHIFTS_S[publisher]
        after_ms = round(1000 * (difference + DELAY_S))
        with three.consumer(
            (owner + 1) % 3, topics[owner], f"Shared&consumerName=c{publisher}", subscription=f"s{publisher}"
        ) as socket:
            began = time.monotonic()
            three.publish(
                publisher,
                topics[owner],
                f"by {publisher}",
                deliverAfterMs=after_ms,
                properties={"by": str(publisher)},
            )
            while True:
                message = json.loads(socket.recv(WAIT_S))
                socket.send(json.dumps({"messageId": message["messageId"]}))
                if message["properties"]["by"] == str(publisher):
                    return time.monotonic() - began

    pairs = [(p, o) for p in range(3) for o in range(3) if SHIFTS_S[o] >= SHIFTS_S[p]]
    with ThreadPoolExecutor(len(pairs)) as pool:
        delays = list(pool.map(delay, *zip(*pairs, strict=True)))
    assert min(delays) >= DELAY_S - 0.01, dict(zip(pairs, delays, strict=True))


def test_messages_do_not_expire_before_their_age(three: Service) -> None:
    for topic in topics_by_owner(three):
        before = three.backlog(0, topic)
        for at in range(3):
            three.publish(at, topic, f"{at}")
        older_than_s = 60 + max(SHIFTS_S) - min(SHIFTS_S)
        for at in range(3):
            three.ask(at, "POST", admin(topic, f"/subscription/s/expireMessages/{older_than_s}"), 204)
            until(lambda topic=topic, before=before: three.backlog(0, topic) == before + 3)


def test_requests_are_answered_in_their_time(three: Service) -> None:
    topics = topics_by_owner(three)
    with contextlib.ExitStack() as stack:
        for at, topic in enumerate(topics):  # not at the owner
            replier = Replier(three.nodes[(at + 1) % 3].url, topic)
            stack.callback(replier.socket.close)
            for asker in range(3):
                answer = three.ask(
                    asker,
                    "POST",
                    f"/topics/public/default/{topic}/request?timeout=30000",
                    json={"value": "hello"},
                )
                assert answer["isErrorResult"] is False
