"""Kafka REST before a real Kafka: byte positions that every process gives alike, over records."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Producer
from tests.support.kafka_broker import KafkaCluster
from tests.support.kafka_rest import consumed, framed
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.protocols.kafka_rest import shared_positions, write
from penstock.testing.server import Address, running

FRAMES = {"accept": "application/x-kafka", "accept-encoding": "identity"}


class Log:
    """One partition as one process serves it."""

    def __init__(self, address: Address, topic: str, partition: int = 0) -> None:
        self._url = f"{address.url}/kafka/topics/{topic}/{partition}"

    def post(self, *payloads: bytes) -> httpx.Response:
        headers = {"content-type": "application/x-kafka"}
        answer = httpx.post(self._url, content=framed(*payloads), headers=headers, timeout=120)
        assert answer.status_code == 204, answer.text
        return answer

    def ask(self, range: str = "0-", **headers: str) -> httpx.Response:
        return httpx.get(self._url, headers={**FRAMES, "range": f"bytes={range}", **headers}, timeout=120)

    def get(self, range: str = "0-", **headers: str) -> tuple[tuple[int, int, int], bytes]:
        answer = self.ask(range, **headers)
        assert answer.status_code == 206, answer.text
        return consumed(answer), answer.content


@pytest.fixture(scope="module")
def engine(kafka_cluster: KafkaCluster) -> ClusterSettings:
    name = f"__{uuid4().hex[:10]}"
    return ClusterSettings(
        url=kafka_cluster.service_url,
        documents_topic=name,
        journals_topic=f"{name}-journals",
        learned_ms=0,
    )


@pytest.fixture(scope="module")
def servers(engine: ClusterSettings) -> Iterator[tuple[Address, Address]]:
    with pytest.MonkeyPatch.context() as patch:
        # However busy the machine is, places are found out.
        patch.setattr(write, "PLACING_S", 100.0)
        patch.setattr(shared_positions, "PLACING_MS", 100_000.0)
        patch.setattr(shared_positions, "COUNTING_S", 100.0)
        with running(engine=engine) as one, running(engine=engine) as other:
            yield one, other


@pytest.fixture
def topic() -> str:
    return f"krest-{uuid4().hex[:12]}"


@pytest.fixture
def logs(servers: tuple[Address, Address], topic: str) -> tuple[Log, Log]:
    return Log(servers[0], topic), Log(servers[1], topic)


def test_what_one_process_stores_another_reads_at_the_same_positions(logs: tuple[Log, Log]) -> None:
    one, other = logs
    one.post(b"first")
    places = [consumed(log.post(b"a", b"bb")) for log in (one, other, one, other)]
    at = len(framed(b"first"))
    size = len(framed(b"a", b"bb"))
    assert places == [(at + n * size, at + (n + 1) * size - 1, at + (n + 1) * size) for n in range(4)]
    whole = framed(b"first", *(b"a", b"bb") * 4)
    for log in logs:
        assert log.get() == ((0, len(whole) - 1, len(whole)), whole)
        assert log.get(f"{at}-{at}") == ((at, at + 10, len(whole)), framed(b"a"))
        assert log.get("-1") == ((len(whole) - 12, len(whole) - 1, len(whole)), framed(b"bb"))
        assert log.ask(f"{len(whole)}-").status_code == 416


def test_records_of_transactions_are_read_without_their_markers(
    logs: tuple[Log, Log], topic: str, kafka_cluster: KafkaCluster
) -> None:
    logs[0].post(b"first")
    producer = Producer(
        {"bootstrap.servers": kafka_cluster.bootstrap, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(60)
    payloads = [b"first"]
    for number in range(6):
        producer.begin_transaction()
        for part in range(number):
            producer.produce(topic, b"%d-%d" % (number, part), partition=0)
        producer.flush(60)
        if number % 2:
            producer.commit_transaction(60)
            payloads += [b"%d-%d" % (number, part) for part in range(number)]
        else:
            producer.abort_transaction(60)
    whole = framed(*payloads)
    for log in logs:
        found: list[bytes] = []

        def all_came(log: Log = log, found: list[bytes] = found) -> bool:
            found[:] = [log.get()[1]]
            return found == [whole]

        until(all_came, said=lambda found=found: found)  # type: ignore[misc]
    assert consumed(logs[1].post(b"more"))[0] == len(whole)


def test_a_reader_waits_for_what_another_process_stores(logs: tuple[Log, Log]) -> None:
    one, other = logs
    one.post(b"first")
    (_, last, _), _ = other.get()
    other.post(b"second")
    (start, _, _), frames = one.get(f"{last + 1}-", prefer="wait=60")
    assert (start, frames) == (last + 1, framed(b"second"))


def test_positions_stay_when_records_are_deleted_and_servers_start_again(
    logs: tuple[Log, Log], engine: ClusterSettings, topic: str, kafka_cluster: KafkaCluster
) -> None:
    one, _ = logs
    for n in range(15):
        one.post(b"%04d" % n)
    assert one.get()[0] == (0, 209, 210)
    with running(engine=engine) as address:
        assert Log(address, topic).get()[0] == (0, 209, 210)  # which is kept when it ends
    kafka_cluster.delete_records(topic, 0, 10)
    with running(engine=engine) as address:
        # It knows neither what is gone nor what others counted beyond the last checkpoint.
        third = Log(address, topic)
        (start, last, size), frames = third.get("0-")
        assert frames == framed(*(b"%04d" % n for n in range(10, 15)))
        assert (start, last + 1, size) == (140, 210, 210)
        third.post(b"more")
        expected = third.get(f"{size}-")
    with running(engine=engine) as address:
        fourth = Log(address, topic)
        assert fourth.get() == ((start, size + 13, size + 14), frames + framed(b"more"))
        assert fourth.get(f"{size}-") == expected


def test_a_topic_that_was_made_anew_begins_at_zero(
    servers: tuple[Address, Address], engine: ClusterSettings, topic: str
) -> None:
    with running(engine=engine) as address:
        log = Log(address, topic)
        for n in range(5):
            log.post(b"%d" % n)
        assert log.get()[0] == (0, 54, 55)
    path = f"{servers[0].url}/admin/v2/persistent/public/default/{topic}"
    assert httpx.delete(path, params={"force": "true"}, timeout=60).status_code == 204
    again = Log(servers[0], topic)
    for n in range(6):
        again.post(b"%04d" % n)
    assert again.get()[0] == (0, 83, 84)


def test_topics_of_the_servers_own_are_not_shown(
    logs: tuple[Log, Log], servers: tuple[Address, Address]
) -> None:
    logs[0].post(b"a")
    logs[0].get()
    shown = httpx.get(f"{servers[0].url}/kafka/topics", timeout=60).json()
    assert [name for name in shown if name.startswith("__")] == []
