"""Kafka REST before a real broker: byte positions that every process gives alike, and producers that requests share."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
from tests.support.kafka_rest import consumed, framed
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.protocols.kafka_rest import shared_positions, write
from penstock.testing.server import Address, running

FRAMES = {"accept": "application/x-kafka", "accept-encoding": "identity"}


def engine(cluster: PulsarCluster) -> ClusterSettings:
    return ClusterSettings(url=cluster.service_url, admin_url=cluster.admin_url, learned_ms=200)


class Log:
    """One partition as one process serves it."""

    def __init__(self, address: Address, topic: str, partition: int = 0) -> None:
        self._url = f"{address.url}/kafka/topics/{topic}/{partition}"

    def post(self, *payloads: bytes) -> httpx.Response:
        headers = {"content-type": "application/x-kafka"}
        answer = httpx.post(self._url, content=framed(*payloads), headers=headers, timeout=120)
        assert answer.status_code == 204, answer.text
        return answer

    def ask(self, range: str | None = "0-", **headers: str) -> httpx.Response:
        sent = {**FRAMES, **headers} if range is None else {**FRAMES, "range": f"bytes={range}", **headers}
        return httpx.get(self._url, headers=sent, timeout=120)

    def get(self, range: str = "0-", **headers: str) -> tuple[tuple[int, int, int], bytes]:
        answer = self.ask(range, **headers)
        assert answer.status_code == 206, answer.text
        return consumed(answer), answer.content


@pytest.fixture(scope="module")
def servers(pulsar_cluster: PulsarCluster) -> Iterator[tuple[Address, Address]]:
    with pytest.MonkeyPatch.context() as patch:
        # However busy the machine is, places are found out.
        patch.setattr(write, "PLACING_S", 100.0)
        patch.setattr(shared_positions, "PLACING_MS", 100_000.0)
        patch.setattr(shared_positions, "COUNTING_S", 100.0)
        with running(engine=engine(pulsar_cluster)) as one, running(engine=engine(pulsar_cluster)) as other:
            yield one, other


@pytest.fixture
def topic() -> str:
    return f"krest-{uuid4().hex[:12]}"


@pytest.fixture
def logs(servers: tuple[Address, Address], topic: str) -> tuple[Log, Log]:
    return Log(servers[0], topic), Log(servers[1], topic)


def admin(cluster: PulsarCluster, topic: str, method: str, what: str, **more: Any) -> httpx.Response:
    return cluster.admin(method, f"persistent/public/default/{topic}{what}", **more)


def trim(cluster: PulsarCluster, topic: str, left: int) -> None:
    """Have the ledgers go that have ended; returns once so many entries are left."""

    def trimmed() -> bool:
        admin(cluster, topic, "POST", "/trim")
        entries = admin(cluster, topic, "GET", "/internalStats").json()["numberOfEntries"]
        return bool(entries == left)

    until(trimmed)


def test_what_one_process_stores_another_reads_at_the_same_positions(logs: tuple[Log, Log]) -> None:
    one, other = logs
    one.post(b"first")  # which may take long, as a journal is made for it
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
    etags = {log.ask().headers["etag"] for log in logs}
    assert len(etags) == 1


def test_what_clients_of_the_broker_publish_is_read(
    logs: tuple[Log, Log], topic: str, pulsar_cluster: PulsarCluster
) -> None:
    payloads = [b"%d" % n * (n % 7) for n in range(300)]
    client = pulsar.Client(pulsar_cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, batching_max_messages=50, compression_type=pulsar.CompressionType.LZ4
    )
    for payload in payloads:
        producer.send_async(payload, None)
    producer.flush()
    client.close()
    whole = framed(*payloads)
    for log in logs:
        at, found = 0, b""
        while at < len(whole):
            (start, last, size), frames = log.get(f"{at}-{at + 700}")
            assert (start, size) == (at, len(whole))
            at, found = last + 1, found + frames
        assert found == whole
    assert consumed(logs[0].post(b"more"))[0] == len(whole)


def test_a_reader_waits_for_what_another_process_stores(logs: tuple[Log, Log]) -> None:
    one, other = logs
    one.post(b"first")
    (_, last, _), _ = other.get()
    other.post(b"second")
    (start, _, _), frames = one.get(f"{last + 1}-", prefer="wait=60")
    assert (start, frames) == (last + 1, framed(b"second"))


def test_partitions_have_positions_of_their_own(
    servers: tuple[Address, Address], topic: str, pulsar_cluster: PulsarCluster
) -> None:
    admin(pulsar_cluster, topic, "PUT", "/partitions", json=2)
    for number in range(2):
        Log(servers[0], topic, number).post(b"%d" % number)
    for number in range(2):
        assert Log(servers[1], topic, number).get() == ((0, 10, 11), framed(b"%d" % number))
    assert Log(servers[1], topic, 2).ask().status_code == 404


def test_positions_stay_when_messages_are_trimmed_and_servers_start_again(
    logs: tuple[Log, Log], topic: str, pulsar_cluster: PulsarCluster
) -> None:
    one, _ = logs
    for n in range(10):
        one.post(b"%04d" % n)
    assert one.get()[0] == (0, 139, 140)
    admin(pulsar_cluster, topic, "PUT", "/unload")  # the ledger ends, and may go
    for n in range(10, 15):
        one.post(b"%04d" % n)
    trim(pulsar_cluster, topic, left=5)
    with running(engine=engine(pulsar_cluster)) as address:
        # It knows neither what is gone nor what others counted beyond the last checkpoint.
        third = Log(address, topic)
        (start, last, size), frames = third.get("0-")
        assert frames == framed(*(b"%04d" % n for n in range(10, 15)))
        assert start >= 140
        assert last + 1 == size == start + 70
        third.post(b"more")
        expected = third.get(f"{size}-")
    with running(engine=engine(pulsar_cluster)) as address:
        fourth = Log(address, topic)
        assert fourth.get() == ((start, size + 13, size + 14), frames + framed(b"more"))
        assert fourth.get(f"{size}-") == expected


def test_positions_go_on_behind_a_log_that_is_empty(
    logs: tuple[Log, Log], topic: str, pulsar_cluster: PulsarCluster
) -> None:
    with running(engine=engine(pulsar_cluster)) as address:
        log = Log(address, topic)
        for n in range(5):
            log.post(b"%d" % n)
        assert log.get()[0] == (0, 54, 55)
    admin(pulsar_cluster, topic, "PUT", "/unload")
    trim(pulsar_cluster, topic, left=0)
    empty = logs[0].ask()
    assert empty.status_code == 416
    size = int(empty.headers["content-range"].removeprefix("bytes */"))
    assert size in (55, 0)  # whether it was kept when the server ended
    (start, last, _) = consumed(logs[0].post(b"more"))
    assert start >= 55
    for log in logs:
        assert log.get() == ((start, last, last + 1), framed(b"more"))


def test_a_topic_that_was_made_anew_begins_at_zero(
    servers: tuple[Address, Address], topic: str, pulsar_cluster: PulsarCluster
) -> None:
    with running(engine=engine(pulsar_cluster)) as address:
        log = Log(address, topic)
        for n in range(5):
            log.post(b"%d" % n)
        assert log.get()[0] == (0, 54, 55)
    admin(pulsar_cluster, topic, "DELETE", "", params={"force": "true"})
    again = Log(servers[0], topic)
    for n in range(6):
        again.post(b"%04d" % n)
    assert again.get()[0] == (0, 83, 84)


def test_requests_share_a_producer(logs: tuple[Log, Log], topic: str, pulsar_cluster: PulsarCluster) -> None:
    names = set()
    for n in range(5):
        logs[0].post(b"%d" % n)
        (publisher,) = admin(pulsar_cluster, topic, "GET", "/stats").json()["publishers"]
        names.add(publisher["producerName"])
    assert len(names) == 1


def test_topics_of_journals_are_not_shown(
    logs: tuple[Log, Log], topic: str, servers: tuple[Address, Address]
) -> None:
    logs[0].post(b"a")
    logs[0].get()
    shown = httpx.get(f"{servers[0].url}/kafka/topics", timeout=60).json()
    assert [name for name in shown if topic in name] == [topic]
