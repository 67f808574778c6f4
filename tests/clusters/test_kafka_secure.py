"""A Kafka that asks who comes, over TLS: by password and by certificate."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.kafka_tls import tls_settings

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.cluster import KafkaCluster as Cluster
from penstock.engines.kafka.driver.ranges import RangeReader
from penstock.engines.opening import open_kafka
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.secret import Secret

pytestmark = pytest.mark.anyio

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_me='it';"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_ON = "listener.name.clients"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[KafkaCluster]:
    """A broker over TLS that takes passwords, and has a user `me` for each mechanism."""
    with standalone(
        tmp_path_factory.mktemp("kafka"),
        {
            **tls_settings(tmp_path_factory.mktemp("kafka-tls"), authority),
            f"{_ON}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{_ON}.plain.sasl.jaas.config": _PLAIN,
            f"{_ON}.scram-sha-256.sasl.jaas.config": _SCRAM,
            f"{_ON}.scram-sha-512.sasl.jaas.config": _SCRAM,
        },
        "SASL_SSL",
    ) as cluster:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            cluster.tool(
                "kafka.admin.ConfigCommand",
                *("--alter", "--entity-type", "users", "--entity-name", "me"),
                *("--add-config", f"{mechanism}=[password=it]"),
            )
        yield cluster


@pytest.fixture
def trust_file(tmp_path: Path, authority: trustme.CA) -> str:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return str(tmp_path / "ca.pem")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_is_let_in_by_each_mechanism(
    secured: KafkaCluster, trust_file: str, mechanism: str
) -> None:
    settings = ClusterSettings(
        url=secured.service_url,
        username="me",
        password=Secret("it"),
        sasl_mechanism=mechanism,  # type: ignore[arg-type]
        tls_trust_file=trust_file,
    )
    broker = open_kafka(settings, BrokerSettings())
    await broker.start()
    try:
        name = TopicName.parse(f"by-{mechanism}")
        await broker.topics.create(name, 0)
        assert (await broker.topics.get(name)).next_offset == 0
    finally:
        await broker.close()


async def test_a_wrong_password_is_the_servers_problem(
    secured: KafkaCluster, trust_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _is_kept_out(
        monkeypatch,
        "refuses the credentials of this server",
        ClusterSettings(
            url=secured.service_url, username="me", password=Secret("no"), tls_trust_file=trust_file
        ),
    )


async def test_a_broker_that_nobody_vouches_for_is_not_talked_to(
    secured: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    await _is_kept_out(
        monkeypatch,
        "certificate",
        ClusterSettings(
            url=secured.service_url,
            username="me",
            password=Secret("it"),
            tls_trust_file=str(tmp_path / "other.pem"),
        ),
    )


async def _is_kept_out(monkeypatch: pytest.MonkeyPatch, why: str, settings: ClusterSettings) -> None:
    monkeypatch.setattr("penstock.engines.kafka.cluster.LOOK_S", 2.0)
    cluster = Cluster(settings)
    try:
        async with asyncio.timeout(60):
            while why not in (cluster.problem or ""):  # nobody may have answered in time
                await cluster.look()
                assert cluster.problem is not None
        with pytest.raises(PenstockError) as caught:
            await cluster.admin.check_reachable(2.0)
        assert caught.value.kind is ErrorKind.UNAVAILABLE
    finally:
        await cluster.close()


async def test_a_certificate_says_who_the_server_is(tmp_path: Path, authority: trustme.CA) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "data").mkdir()
    own = authority.issue_cert("penstock.test")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    asked = {**tls_settings(tmp_path / "tls", authority), f"{_ON}.ssl.client.auth": "required"}
    with standalone(tmp_path / "data", asked, "SSL") as cluster:
        files = {"tls_trust_file": str(tmp_path / "ca.pem"), "tls_cert_file": str(tmp_path / "own.pem")}
        known = Cluster(ClusterSettings(url=cluster.service_url, **files))  # type: ignore[arg-type]
        unknown = Cluster(ClusterSettings(url=cluster.service_url, tls_trust_file=files["tls_trust_file"]))
        try:
            await known.start()
            assert known.problem is None
            with pytest.raises(PenstockError):
                await unknown.admin.check_reachable(2.0)
        finally:
            await known.close()
            await unknown.close()


def test_ranges_are_read_under_the_readers_own_credentials(secured: KafkaCluster, trust_file: str) -> None:
    """As tasks of Spark read them, which get their properties from their user."""
    given = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": "it",
        "ssl.ca.location": trust_file,
        "ssl.endpoint.identification.algorithm": "none",
    }
    topic = f"ranges-{uuid4().hex[:12]}"
    admin = AdminClient(given)
    for done in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        done.result(60)
    producer = Producer(given)
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    reader = RangeReader(given)
    assert reader.topic_id(topic)
    found = [one for chunk in reader.read((topic, 0), 10, 90) for one in chunk]
    assert [one.value() for one in found] == [b"%d" % number for number in range(10, 90)]
    reader.close()
    refused = RangeReader({**given, "sasl.password": "no"})
    with pytest.raises(PenstockError, match="refuses the credentials") as caught:
        list(refused.read((topic, 0), 0, 100))
    assert caught.value.kind is ErrorKind.UNAUTHENTICATED
    with pytest.raises(PenstockError, match="refuses the credentials"):
        refused.topic_id(topic)
    refused.close()
