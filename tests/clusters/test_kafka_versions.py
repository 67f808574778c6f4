"""What other releases kept in a real Kafka: older records are served, newer ones are reported and never written over."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from uuid import uuid4

import httpx
import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_vectors import VERSIONS, StoredRecord, records
from tests.support.kafka_broker import KafkaCluster
from tests.support.stages import refused, stage
from tests.support.waiting import until
from tests.vectors.cluster.make import records as read

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.client.access import Access
from penstock.model.errors import ErrorKind
from penstock.model.formats import VERSION
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.testing.server import Address, running

WAIT_S = 30.0
# The records grow older: what was staged is not to end by that.
KEPT = BrokerSettings(stage_timeout_ms=2**50, writer_expiry_minutes=0)
RANGE = {"accept": "application/x-kafka", "range": "bytes=0-"}


@pytest.fixture
def engine(kafka_cluster: KafkaCluster) -> ClusterSettings:
    """A server's with internal topics of its own."""
    name = f"__{uuid4().hex[:10]}"
    return ClusterSettings(
        url=kafka_cluster.service_url,
        documents_topic=name,
        journals_topic=f"{name}_journals",
        replies_topic=f"{name}_replies",
        learned_ms=200,
    )


class Internal:
    """The internal topics of a server, as another program sees them."""

    def __init__(self, cluster: KafkaCluster, engine: ClusterSettings) -> None:
        self._bootstrap = cluster.bootstrap
        self.documents = engine.documents_topic
        self.parts = f"{engine.documents_topic}_parts"
        self.staging = f"{engine.documents_topic}_staging"
        self.commits = f"{engine.documents_topic}_commits"
        self.journals = engine.journals_topic

    def create(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        tables = (self.documents, self.parts, self.commits)
        config = {"cleanup.policy": "compact"} if topic in tables else {}
        admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(WAIT_S)

    def put(self, topic: str, stored: Sequence[StoredRecord]) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for one in stored:
            producer.produce(
                topic, one.value(), one.key(), partition=one.the_partition, headers=one.the_headers
            )
        assert producer.flush(WAIT_S) == 0

    def get(self, topic: str) -> list[StoredRecord]:
        return [
            StoredRecord(
                *(_bytes(one[part]) for part in ("key", "value")),
                [(name, _bytes(value)) for name, value in one["headers"]],
                one["offset"],
                one["partition"],
            )
            for one in read(self._bootstrap, topic)
        ]

    def newest(self, topic: str, key: bytes) -> StoredRecord:
        """The last record of a key, or of one that begins so."""
        return [one for one in self.get(topic) if (one.key() or b"").startswith(key) and one.value()][-1]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


@pytest.fixture
def internal(kafka_cluster: KafkaCluster, engine: ClusterSettings) -> Internal:
    return Internal(kafka_cluster, engine)


@pytest.fixture
def topic(internal: Internal) -> str:
    """A topic of the test's own, with two messages."""
    name = f"t{uuid4().hex[:12]}"
    internal.create(name, 1)
    internal.put(name, [StoredRecord(None, b"a", []), StoredRecord(None, b"b", [])])
    return name


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_server_of_each_version_kept_is_served(
    engine: ClusterSettings, internal: Internal, topic: str, version: int
) -> None:
    """Also what was staged: it is committed, to a topic of this test."""
    for name, place, partitions in (
        (internal.documents, "documents", 1),
        (internal.parts, "parts", 1),
        (internal.commits, "commits", 1),
        (internal.staging, "staging", 8),
    ):
        internal.create(name, partitions)
        stored = records(version, place)
        for one in stored:  # those of transactions were followed by a marker
            assert place != "staging" or one.offset() < 2
        internal.put(name, [_renamed(one, topic) for one in stored])
    with running(engine=engine, broker=KEPT) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        space = "/admin/v2/namespaces/acme/sales"
        assert http.get(f"{space}/permissions").json() == {"clerk": ["produce"]}
        kept = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
        assert http.get(f"{space}/retention").json() == kept
        assert http.get("/admin/v2/tenants/acme").json()["adminRoles"] == ["boss"]
        ready = http.get("/health/ready").json()
        ready.pop("processes", None)  # the process that wrote the documents, with another secret
        assert ready == {"status": "ready"}
        with Stages(Access(url=server.url), retry_s=0) as client:
            (staged,) = client.status("job")["staged"]
            (held,) = staged["stages"]
            count = StageCount("s", held["parts"], held["messages"], held["size_bytes"])
            assert (staged["batch"], count.messages) == (4, 3)
            client.commit("job", 4, [count])
        answer = http.get(
            f"/topics/public/default/{topic}/partitions/0/messages", params={"offset": 0, "encoding": "text"}
        )
        assert [one["value"] for one in answer.json()["messages"]][2:] == ["a", "b", "c"]
        # What it writes on top is of this version.
        assert http.post(f"{space}/permissions/other", json=["consume"]).is_success
    assert internal.newest(internal.documents, b"namespace\0acme/sales").the_headers == [(VERSION, b"1")]


def _renamed(one: StoredRecord, topic: str) -> StoredRecord:
    """The same about another topic than `staged`."""
    value = one.value()
    return msgspec.structs.replace(
        one,
        the_value=None if value is None else value.replace(b"default/staged", f"default/{topic}".encode()),
    )


@pytest.fixture
def server(engine: ClusterSettings) -> Iterator[Address]:
    with running(engine=engine) as address:
        yield address


def test_a_newer_document_is_reported_and_not_written_over(
    engine: ClusterSettings, internal: Internal, server: Address
) -> None:
    mark = f"n{uuid4().hex[:10]}"
    space = f"/admin/v2/namespaces/public/{mark}"
    policies = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5}
    with httpx.Client(base_url=server.url, timeout=60) as http:
        assert http.put(space, json={}).is_success
        assert http.post(f"{space}/permissions/clerk", json=["produce"]).is_success
        newer = internal.newest(internal.documents, f"namespace\0public/{mark}".encode()).newer(b'{"x": 1}')
        internal.put(internal.documents, [newer])
        until(lambda: http.get("/health/ready").json() == {"status": "ready", "failing": {"document": 1}})
        _refused(http.post(f"{space}/retention", json=policies))
        assert http.get(f"{space}/permissions").json() == {}, "nobody can tell whether they hold"
    with running(engine=engine) as again, httpx.Client(base_url=again.url, timeout=60) as http:
        assert http.get("/health/ready").json() == {"status": "ready", "failing": {"document": 1}}
        _refused(http.post(f"{space}/retention", json=policies))
        _refused(http.delete(space))
        assert http.put(f"/admin/v2/namespaces/public/o{mark}", json={}).is_success, "all others are written"
    kept = internal.newest(internal.documents, f"namespace\0public/{mark}".encode())
    assert (kept.value(), kept.the_headers) == (b'{"x": 1}', [(VERSION, b"2")])


def test_no_position_is_given_behind_a_newer_record(
    engine: ClusterSettings, internal: Internal, server: Address, topic: str
) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        assert http.get(f"/kafka/topics/{topic}/0", headers=RANGE).status_code == 206
        first = internal.newest(internal.journals, topic.encode())
        assert msgspec.json.decode(first.value() or b"")["version"] == 1
        internal.put(internal.journals, [msgspec.structs.replace(first, the_value=b'{"version":2,"a":[]}')])
    with running(engine=engine) as again, httpx.Client(base_url=again.url, timeout=60) as http:
        for _ in range(2):
            _refused(http.get(f"/kafka/topics/{topic}/0", headers=RANGE))
    assert internal.newest(internal.journals, topic.encode()).value() == b'{"version":2,"a":[]}'


def test_what_a_newer_server_staged_is_left_alone(internal: Internal, server: Address, topic: str) -> None:
    with Stages(Access(url=server.url), retry_s=0) as client:
        count = stage(client, "w", 1, "s", **{topic: 2})
        row = internal.newest(internal.parts, b'["w"')
        other = (row.key() or b"").replace(b',0,"', b',1,"')
        internal.put(internal.parts, [msgspec.structs.replace(row.newer(), the_key=other)])
        calls = (
            lambda: client.commit("w", 1, [count]),
            lambda: client.abort("w", 1),
            lambda: client.status("w"),
            lambda: client.forget("w"),
        )
        for call in calls:
            assert refused(call).kind is ErrorKind.NEWER_FORMAT
        count = stage(client, "v", 1, "s", **{topic: 2})
        (span,) = client.commit("v", 1, [count])["spans"]
        assert span["messages"] == 2, "other writers go on"


def _refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50307), answer.text
    assert "has version 2" in answer.json()["message"]
