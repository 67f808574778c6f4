"""What pipelines ask of a server before a real broker: many logs in one request, sizes, marks, raw entries, whole entries."""

from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.support.pulsar_broker import PulsarCluster

from penstock.client.http import HttpClient
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.pipeline.http.logs import Mark, look, set_marks, sizes
from penstock.pipeline.rows.entries import read_frames
from penstock.testing.server import Address, running
from penstock.wire import entry as wire
from penstock.wire.bulk import pack_sections

ENTRIES = "application/vnd.penstock.entries"
SECTIONS = "application/vnd.penstock.sections"


@pytest.fixture(scope="module")
def server(pulsar_cluster: PulsarCluster) -> Iterator[Address]:
    with running(engine=pulsar_cluster.settings) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[HttpClient]:
    with HttpClient(server.url) as client:
        yield client


@pytest.fixture
def topic(client: HttpClient) -> TopicName:
    name = TopicName.parse(f"bulk-{uuid4().hex[:12]}")
    client.create_topic(name, 2)
    return name


def fill(client: HttpClient, topic: TopicName, messages: int, each: int = 1, size: int = 1000) -> None:
    """Publish entries of `each` messages, by turns to both partitions."""
    for start in range(0, messages, each):
        values = [{"value": str(n).ljust(size, ".")} for n in range(start, min(messages, start + each))]
        client.call(
            "POST",
            f"/topics/{topic.namespace_name}/{topic.local}/partitions/{start // each % 2}",
            body={"messages": values},
        )


def test_offsets_of_many_partitions_and_what_comes(client: HttpClient, topic: TopicName) -> None:
    fill(client, topic, 6)
    found = look(client, [topic, TopicName.parse("no-such-topic")], times=[0])
    logs = found.logs or []
    assert [(one.partition, one.earliest, one.latest, one.at) for one in logs] == [
        (0, 0, 3, {0: 0}),
        (1, 0, 3, {0: 0}),
    ]
    assert found.missing == ["persistent://public/default/no-such-topic"]
    seen = look(client, [topic]).seen
    assert look(client, [topic], seen=seen, wait_ms=200).logs is None
    fill(client, topic, 1)
    news = look(client, [topic], seen=seen, wait_ms=20_000).logs or []
    assert [one.latest for one in news] == [4, 3]
    patterns = [(NamespaceName.parse("public/default"), f"{topic.local[:-2]}..")]
    assert [one.latest for one in look(client, [], patterns).logs or []] == [4, 3]


def test_sizes_are_near_what_there_is(
    client: HttpClient, topic: TopicName, pulsar_cluster: PulsarCluster
) -> None:
    fill(client, topic, 40)
    pulsar_cluster.admin("PUT", f"persistent/public/default/{topic.local}/unload")
    fill(client, topic, 40)
    name = str(topic)
    whole, half, none, some, least = sizes(
        client,
        [(name, 0, 0, None), (name, 0, 20, None), (name, 0, 40, None), (name, 0, 5, 10_000), (name, 0, 9, 1)],
    )
    assert 40_000 < whole.total < 48_000
    assert (whole.bytes, whole.end) == (whole.total, 40)
    assert half.total == pytest.approx(whole.total / 2, rel=0.1)
    assert (none.total, none.bytes, none.end) == (0, 0, 40)
    assert 12 <= some.end <= 15
    assert 0 < some.bytes <= 10_000
    assert least.end == 10, "one entry at least"


def test_a_subscription_follows_by_offsets(
    client: HttpClient, topic: TopicName, pulsar_cluster: PulsarCluster
) -> None:
    fill(client, topic, 20, each=2)

    def marks(*offsets: int, exact: bool = False) -> list[str]:
        wanted = [Mark(str(topic), n, -1, offset) for n, offset in enumerate(offsets)]
        return list(set_marks(client, "follower", wanted, exact=exact).values())

    def backlogs() -> list[int]:
        """In entries, as the broker counts them."""
        path = f"persistent/public/default/{topic.local}"
        stats = [pulsar_cluster.admin("GET", f"{path}-partition-{n}/stats").json() for n in range(2)]
        return [one["subscriptions"]["follower"]["msgBacklog"] for one in stats]

    assert marks(0, 0) == []
    assert backlogs() == [5, 5]
    assert marks(4, 10) == []
    assert backlogs() == [3, 0]
    assert marks(2, 6) == [], "it does not go back"
    assert backlogs() == [3, 0]
    assert marks(2, 6, exact=True) == []
    assert backlogs() == [4, 2]
    assert "past the end" in marks(11, 10)[0]


def frames(server: Address, topic: TopicName, **params: Any) -> tuple[httpx.Headers, list[Any]]:
    path = f"{server.url}/topics/{topic.namespace_name}/{topic.local}/partitions/0/messages"
    answer = httpx.get(path, params=params, headers={"accept": ENTRIES}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.headers, list(read_frames(BytesIO(answer.content).read))


def test_raw_entries_name_their_ledgers(
    server: Address, client: HttpClient, topic: TopicName, pulsar_cluster: PulsarCluster
) -> None:
    fill(client, topic, 12, each=2)
    pulsar_cluster.admin("PUT", f"persistent/public/default/{topic.local}/unload")
    fill(client, topic, 4, each=2)
    headers, found = frames(server, topic, offset=1, end_offset=7)
    assert [(one.offset, one.count) for one in found] == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert headers["x-penstock-ledger"] == "-1"
    assert headers["x-penstock-dense"] == "false"
    assert headers["x-penstock-earliest"] == "0"
    ids = [one["messageId"] for one in client.read(topic, 0)["messages"]]
    first, last = found[0], found[-1]
    assert first.ledger != last.ledger
    for frame in found:
        assert MessageId(frame.ledger, frame.entry_id, 0, 0, 2) == MessageId.parse(ids[frame.offset])


def entry(producer: str, number: int, value: bytes) -> bytes:
    return wire.encode(
        [OutMessage(payload=value)],
        producer=producer,
        sequence_id=number,
        publish_time=1,
        schema_version=None,
    ).data


def publish(server: Address, topic: TopicName, entries: list[bytes], *, deduplicate: bool) -> httpx.Response:
    body = b"".join(pack_sections([(str(topic), entries)]))
    return httpx.post(
        f"{server.url}/entries",
        params={"deduplicate": str(deduplicate).lower()},
        content=body,
        headers={"content-type": SECTIONS},
        timeout=60,
    )


def test_whole_entries_are_published_and_repeats_stay(server: Address, client: HttpClient) -> None:
    name = TopicName.parse(f"whole-{uuid4().hex[:12]}")
    opened = client.call("POST", "/stages", body={"topics": [str(name)]})
    assert opened["staged"] is False
    some = [entry("spark-a", n, b"%d" % n) for n in range(3)]
    for _ in range(2):
        answer = publish(server, name, some, deduplicate=False)
        assert answer.status_code == 200, answer.text
        (result,) = answer.json()["results"]
        assert (result["messages"], result["repeats"], result["offset"]) == (3, 0, None)
        assert result["message_id"]
    read = client.read(name)["messages"]
    assert [b64decode(one["value"]) for one in read] == [b"0", b"1", b"2"] * 2
    assert {one["producerName"] for one in read} == {"spark-a"}
    refused = publish(server, name, some, deduplicate=True)
    assert refused.status_code == 501
    assert "deduplication is off" in refused.json()["message"]
    staged = httpx.get(f"{server.url}/stages/w")
    assert (staged.status_code, staged.json()["error_code"]) == (501, 50101)


def test_repeats_are_told_where_the_cluster_deduplicates(
    server: Address, client: HttpClient, pulsar_cluster: PulsarCluster, pulsar_namespace: str
) -> None:
    pulsar_cluster.admin("POST", f"namespaces/{pulsar_namespace}/deduplication", json=True)
    name = TopicName.parse(f"persistent://{pulsar_namespace}/t")
    some = [entry("spark-a", n, b"%d" % n) for n in range(5)]
    first = publish(server, name, some[:3], deduplicate=True)
    assert first.status_code == 200, first.text
    again = publish(server, name, [*some, entry("spark-b", 0, b"b")], deduplicate=True).json()["results"][0]
    assert (again["repeats"], again["last_sequence_id"]) == (3, 0)
    last = publish(server, name, some, deduplicate=True).json()["results"][0]
    assert (last["repeats"], last["last_sequence_id"], last["message_id"]) == (5, 4, None)
    assert sorted(b64decode(one["value"]) for one in client.read(name)["messages"]) == [
        b"0", b"1", b"2", b"3", b"4", b"b",
    ]  # fmt: skip
