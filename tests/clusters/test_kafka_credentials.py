"""Credentials towards Kafka that change while the server runs: passwords, tokens, certificates."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trustme
from tests.support.identity_provider import IdentityProvider, SigningKey
from tests.support.kafka_bench import Client
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.kafka_tls import tls_settings
from tests.support.waiting import until_async as until

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.cluster import KafkaCluster as Cluster
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.model.secret import Secret
from penstock.runtime.clock import LoopClock

pytestmark = pytest.mark.anyio

_ON = "listener.name.clients"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
PASSING = (ErrorKind.UNAVAILABLE, ErrorKind.MESSAGE_NOT_FOUND)  # the latter of a partition that was lost
REAUTH_MS = 3000  # then brokers ask each connection again, and end those whose credentials count no more


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Server:
    """A broker of ours, with a producer and a consumer of one topic."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.topic = TopicName.parse(f"cr-{uuid4().hex[:10]}")
        self.client: Client
        self._producer: Any

    async def begin(self) -> None:
        await self.broker.topics.create(self.topic, 0)
        self._producer = await self.broker.producer(self.topic)
        self.client = await self.subscribe("s")

    async def subscribe(self, name: str) -> Client:
        options = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST)
        return Client(self.broker, await self.broker.subscribe([self.topic], name, options))

    async def goes_through(self, text: str) -> None:
        """A message is published, delivered, acknowledged and read, and a document is kept; errors that pass are met again."""
        async with asyncio.timeout(120):
            await self._again(lambda: self._producer.publish([OutMessage(payload=text.encode())]))
            await until(lambda: text in self.client.texts, 120)
            await self._again(lambda: self._acknowledge(text))
            log = await self.broker.topics.get(self.topic)
            await self._again(log.refresh)
            await self._again(lambda: self.broker.topics.set_properties(self.topic, lambda _: {"said": text}))

    async def _acknowledge(self, text: str) -> None:
        """As it came last: a partition that was lost and came back is delivered again."""
        consumer = self.client.consumer
        last = max(at for at, one in enumerate(self.client.texts) if one == text)
        await consumer.acknowledge(self.client.ids[last])
        await consumer.flush()

    async def _again(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                outcome = await call()
            except PenstockError as error:
                if error.kind not in PASSING:
                    raise
            else:
                failed = [one for one in outcome or () if isinstance(one, PenstockError)]
                if not failed:
                    return
                assert failed[0].kind in PASSING, failed
            await asyncio.sleep(0.2)  # brokers tell nobody when they would take it


@asynccontextmanager
async def server(cluster: KafkaCluster, **settings: Any) -> AsyncIterator[Server]:
    given = ClusterSettings(
        url=cluster.service_url, documents_topic=f"__penstock-{uuid4().hex[:10]}", **settings
    )
    broker = KafkaBroker(given, BrokerSettings(cursor_flush_ms=20), LoopClock())
    await broker.start()
    try:
        made = Server(broker)
        await made.begin()
        yield made
    finally:
        await broker.close()


# -- passwords


def _set_password(cluster: KafkaCluster, password: str) -> None:
    cluster.tool(
        "kafka.admin.ConfigCommand",
        *("--alter", "--entity-type", "users", "--entity-name", "me"),
        *("--add-config", f"SCRAM-SHA-512=[password={password}]"),
    )


@pytest.fixture(scope="module")
def scram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with standalone(
        tmp_path_factory.mktemp("scram"),
        {
            f"{_ON}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            f"{_ON}.scram-sha-512.sasl.jaas.config": _SCRAM,
            f"{_ON}.scram-sha-512.connections.max.reauth.ms": str(REAUTH_MS),
        },
        "SASL_PLAINTEXT",
    ) as cluster:
        yield cluster


async def test_a_password_that_changes_is_felt_as_a_pause(scram: KafkaCluster, tmp_path: Path) -> None:
    _set_password(scram, "one")
    file = tmp_path / "password"
    file.write_text("one\n")
    settings = {"username": "me", "password_file": str(file), "sasl_mechanism": "SCRAM-SHA-512"}
    async with server(scram, **settings) as one:
        await one.goes_through("a")
        await asyncio.to_thread(_set_password, scram, "two")
        cluster = one.broker.kafka
        await until(lambda: "refuses the credentials" in (cluster.problem or ""), 120)
        assert any(error == "_AUTHENTICATION" for _, error in one.broker.cluster.figures().client_errors)
        file.write_text("two\n")
        await one.goes_through("b")
        await until(lambda: cluster.problem is None, 120)
        assert set(one.client.texts) == {"a", "b"}  # its consumer stayed


async def test_a_new_consumer_is_not_kept_waiting_where_the_server_is_refused(scram: KafkaCluster) -> None:
    _set_password(scram, "one")
    async with server(scram, username="me", password=Secret("one"), sasl_mechanism="SCRAM-SHA-512") as one:
        await asyncio.to_thread(_set_password, scram, "two")
        cluster = one.broker.kafka
        await until(lambda: "refuses the credentials" in (cluster.problem or ""), 120)
        with pytest.raises(PenstockError, match="refuses the credentials of this server") as caught:
            await one.subscribe("other")
        assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_a_server_with_a_wrong_password_does_not_wait(scram: KafkaCluster) -> None:
    _set_password(scram, "one")
    cluster = Cluster(
        ClusterSettings(
            url=scram.service_url, username="me", password=Secret("no"), sasl_mechanism="SCRAM-SHA-512"
        )
    )
    try:
        with pytest.raises(PenstockError, match="refuses the credentials of this server"):
            await cluster.start()
    finally:
        await cluster.close()


# -- tokens


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey()


@pytest.fixture(scope="module")
def oauth(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Iterator[KafkaCluster]:
    """A broker that verifies tokens by the keys of a file."""
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(key.jwks)
    on = f"{_ON}.oauthbearer"
    with standalone(
        tmp_path_factory.mktemp("oauth"),
        {
            f"{_ON}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{on}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{on}.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            f"{on}.connections.max.reauth.ms": str(REAUTH_MS),
            f"{_ON}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{_ON}.sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
        },
        "SASL_PLAINTEXT",
        java=[
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={keys}",
        ],
    ) as cluster:
        yield cluster


async def test_a_token_of_a_file_is_renewed(oauth: KafkaCluster, key: SigningKey, tmp_path: Path) -> None:
    file = tmp_path / "token"
    life_s = 30
    file.write_text(key.token("me", life_s))
    ends = time.time() + life_s
    async with server(oauth, sasl_mechanism="OAUTHBEARER", token_file=str(file)) as one:
        file.write_text(key.token("me", 3600))
        await one.goes_through("a")
        while time.time() < ends + REAUTH_MS / 1000:
            await asyncio.sleep(0.2)  # the first token has to end
        await one.goes_through("b")
        assert set(one.client.texts) == {"a", "b"}
        assert one.broker.kafka.problem is None


async def test_tokens_come_from_an_identity_provider(
    oauth: KafkaCluster, key: SigningKey, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("it\n")
    with IdentityProvider(lambda: key.token("me", 20)) as provider:
        settings = {
            "sasl_mechanism": "OAUTHBEARER",
            "oauth_token_url": provider.url,
            "oauth_client_id": "me",
            "oauth_client_secret_file": str(secret),
            "oauth_extensions": {"logicalCluster": "lkc"},
        }
        begun = time.monotonic()
        async with server(oauth, **settings) as one:
            await one.goes_through("a")
            # One token serves all clients, and the next is asked for after 16 s.
            assert len(provider.given) <= 2 + (time.monotonic() - begun) / 10
            provider.secret = "other"
            cluster = one.broker.kafka
            await until(lambda: cluster.problem is not None, 120)
            assert "invalid_client" in str(cluster.problem)
            secret.write_text("other\n")
            await one.goes_through("b")
            await until(lambda: cluster.problem is None, 120)
            assert set(one.client.texts) == {"a", "b"}


# -- certificates


async def test_certificates_are_renewed(tmp_path: Path) -> None:
    authority = trustme.CA()
    for name in ("tls", "data"):
        (tmp_path / name).mkdir()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def issue(file: Path, life_s: float) -> str:
        ends = datetime.now(UTC) + timedelta(seconds=life_s)
        made = authority.issue_cert("penstock.test", not_after=ends)
        other = file.with_suffix(".new")
        made.private_key_and_cert_chain_pem.write_to_path(other)
        other.replace(file)
        return str(file)

    asked = {
        **tls_settings(tmp_path / "tls", authority),
        f"{_ON}.ssl.client.auth": "required",
        "connections.max.idle.ms": "3000",  # so that clients connect again
    }
    with standalone(tmp_path / "data", asked, "SSL") as cluster:
        trust, life_s = str(tmp_path / "ca.pem"), 30.0
        ends = time.time() + life_s
        own, kept = issue(tmp_path / "own.pem", life_s), issue(tmp_path / "kept.pem", life_s)
        control = Cluster(ClusterSettings(url=cluster.service_url, tls_trust_file=trust, tls_cert_file=kept))
        async with server(cluster, tls_trust_file=trust, tls_cert_file=own) as one:
            await control.look()
            assert control.problem is None
            await one.goes_through("a")
            issue(Path(own), 3600)
            await until(lambda: one.broker.kafka.clients.generation == 1, 120)
            await one.goes_through("b")
            while time.time() < ends + 5:
                await asyncio.sleep(0.2)  # the first certificate has to end, and idle connections
            await one.goes_through("c")
            assert set(one.client.texts) == {"a", "b", "c"}
            assert one.broker.kafka.problem is None
            async with asyncio.timeout(120):
                while control.problem is None:  # what was not renewed counts no more
                    await control.look()
        await control.close()
