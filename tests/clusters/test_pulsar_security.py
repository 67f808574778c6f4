"""Before a broker over TLS: every kind of credentials, and what is said where they or the certificates are not right."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import httpx
import pulsar
import pytest
from tests.support.pulsar_secure import PASSWORD, SecureCluster
from tests.support.waiting import BOUND_S, until

from penstock.model.secret import Secret
from penstock.server.config import TlsSettings
from penstock.testing.server import running

WAIT_MS: Final = 30_000
TRIES: Final = 3
FETCHES: Final = 4  # who tries to connect again may wait for 30 s between


@pytest.fixture
def topic() -> str:
    return f"/topics/public/default/security-{uuid4().hex[:12]}"


@pytest.fixture(params=["token", "token_file", "password", "certificate"])
def credentials(request: pytest.FixtureRequest, secure_cluster: SecureCluster, tmp_path: Path) -> Any:
    """Every kind that the cluster knows, as settings of `engine`."""
    token = secure_cluster.issuer.token("penstock-itself")
    if request.param == "token":
        return {"token": Secret(token)}
    if request.param == "token_file":
        file = tmp_path / "token"
        file.write_text(token + "\n")
        return {"token_file": str(file)}
    if request.param == "password":
        return {"username": "basic", "password": Secret(PASSWORD)}
    cert, key = secure_cluster.certificate("certified")
    return {"tls_cert_file": cert, "tls_key_file": key}


def publish(rest: httpx.Client, topic: str, *values: str) -> None:
    answer = rest.post(topic, json={"messages": [{"value": value} for value in values]})
    assert answer.status_code == 200, answer.text
    assert [one["error_code"] for one in answer.json()["messageIds"]] == [None] * len(values)


def subscribed(rest: httpx.Client, topic: str) -> str:
    """The path of a consumer instance that begins with the first message."""
    made = rest.post(f"{topic}/subscription/s", json={"initial_position": "earliest"})
    assert made.status_code == 200, made.text
    return f"{topic}/subscription/s/consumer/{made.json()['id']}/messages"


def next_value(rest: httpx.Client, instance: str) -> Any:
    """The next message's, which is acknowledged."""
    messages: list[Any] = []
    for _ in range(FETCHES):
        answer = rest.get(instance, params={"timeout": WAIT_MS, "max_messages": 1})
        assert answer.status_code == 200, answer.text
        if messages := answer.json()["messages"]:
            break
    (message,) = messages
    cursor = instance.partition("/consumer/")[0] + "/cursor"
    done = rest.post(cursor, json={"messageIds": [message["messageId"]]})
    assert done.json()["messageIds"][0]["error_code"] is None
    return message["value"]


def test_everything_works_with_every_kind_of_credentials(
    secure_cluster: SecureCluster, credentials: Any, topic: str
) -> None:
    with (
        running(engine=secure_cluster.engine(**credentials)) as server,
        httpx.Client(base_url=server.url, timeout=60) as rest,
    ):
        assert rest.get("/health/ready").status_code == 200
        body = {"value_schema": {"type": "JSON", "schema": SCHEMA}, "messages": [{"value": {"n": 1}}]}
        published = rest.post(topic, json=body)
        assert published.status_code == 200, published.text
        assert next_value(rest, subscribed(rest, topic)) == {"n": 1}
        page = rest.get(f"{topic}/partitions/0/messages").json()["messages"]
        assert [(one["value"], one["offset"]) for one in page] == [({"n": 1}, 0)]
        name = topic.removeprefix("/topics/")
        assert rest.get(f"/admin/v2/schemas/{name}/schema").json()["type"] == "JSON"
        assert rest.get(f"/admin/v2/persistent/{name}/stats").json()["msgInCounter"] == 1
        assert rest.get("/admin/v2/brokers/configuration/runtime").status_code == 200
        found = rest.get(f"/lookup/v2/topic/persistent/{name}").json()
        assert found["brokerUrlTls"] == secure_cluster.plain.tls_url


SCHEMA: Final = '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}'


def test_lookups_over_tls_lead_to_the_tls_port_of_the_broker(
    secure_cluster: SecureCluster, topic: str
) -> None:
    cert, key = secure_cluster.certificate("localhost", secure_cluster.servers)
    name = f"persistent://{topic.removeprefix('/topics/')}"
    token = pulsar.AuthenticationToken(secure_cluster.issuer.token("app"))
    tls = TlsSettings(cert_file=cert, key_file=key)
    with running(engine=secure_cluster.engine(), tls=tls) as server, ExitStack() as open_ones:
        urls = [server.pulsar_tls, server.pulsar]
        for count, url in enumerate(urls, 1):
            given: dict[str, Any] = {}
            if url == server.pulsar_tls:
                # The certificate of the server is of another host: only the chain is looked at.
                given = {"tls_trust_certs_file_path": secure_cluster.ca_file, "tls_validate_hostname": False}
            client = pulsar.Client(url, authentication=token, **given)
            open_ones.callback(client.close)
            client.create_producer(name).send(url.encode())
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            assert [reader.read_next(WAIT_MS).data().decode() for _ in range(count)] == urls[:count]


def over_localhost(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


Wrong = tuple[Callable[[SecureCluster], dict[str, Any]], str]

# Settings that are not right, and what is said of them.
WRONG: Final[dict[str, Wrong]] = {
    "none": (lambda c: {"token": Secret()}, r"refuses the credentials .*none are set: engine\.token"),
    "token": (lambda c: {"token": Secret("nonsense")}, r"refuses the credentials .*\(engine\.token\)"),
    "expired": (
        lambda c: {"token": Secret(c.issuer.token("penstock-itself", expires_s=-60))},
        r"refuses the credentials .*\(engine\.token\)",
    ),
    "token file": (lambda c: {"token_file": "/nowhere"}, r"\(engine\.token_file\) cannot be read"),
    "password": (
        lambda c: {"username": "basic", "password": Secret("another")},
        r"refuses the credentials .*\(engine\.username and password\)",
    ),
    "certificate": (
        lambda c: dict(
            zip(("tls_cert_file", "tls_key_file"), c.certificate("stranger", c.servers), strict=True)
        ),
        r"engine\.tls_cert_file",
    ),
    "proxy": (
        lambda c: {"token": Secret(c.issuer.token("penstock"))},
        r"wants engine\.own_principal",
    ),
    "principal": (
        lambda c: {"token": Secret(c.issuer.token("penstock")), "own_principal": "penstock"},
        r"engine\.own_principal: Invalid roles",
    ),
    "authority": (lambda c: {"tls_trust_file": c.other_ca_file}, r"engine\.tls_trust_file"),
    "system": (lambda c: {"tls_trust_file": ""}, r"engine\.tls_trust_file"),
    "host": (lambda c: {"url": over_localhost(c.plain.tls_url)}, r"engine\.tls_check_host"),
    "admin host": (lambda c: {"admin_url": over_localhost(c.plain.admin_tls_url)}, r"engine\.tls_check_host"),
    "admin port": (
        lambda c: {"admin_url": c.plain.admin_tls_url.replace("https", "http")},
        r"whether these ports are of TLS",
    ),
    "no file": (lambda c: {"tls_trust_file": "/nowhere"}, r"engine\.tls_trust_file \(/nowhere\)"),
    "no certificate": (lambda c: {"tls_cert_file": c.ca_file}, r"engine\.tls_cert_file"),
    "half a certificate": (lambda c: {"tls_key_file": c.ca_file}, r"engine\.tls_key_file needs"),
    "certificate without TLS": (
        lambda c: {
            "url": c.plain.service_url,
            **dict(zip(("tls_cert_file", "tls_key_file"), c.certificate("certified"), strict=True)),
        },
        r"engine\.url has to be one of TLS",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_server_does_not_start_with_what_is_not_right(secure_cluster: SecureCluster, name: str) -> None:
    make, message = WRONG[name]
    with (
        pytest.raises(Exception, match=message),
        running(engine=secure_cluster.engine(**make(secure_cluster))),
    ):
        pass


def test_a_name_that_is_not_checked(secure_cluster: SecureCluster, topic: str) -> None:
    plain = secure_cluster.plain
    engine = secure_cluster.engine(
        url=over_localhost(plain.tls_url), admin_url=over_localhost(plain.admin_tls_url), tls_check_host=False
    )
    with running(engine=engine) as server, httpx.Client(base_url=server.url, timeout=60) as rest:
        publish(rest, topic, "a")
        assert rest.get("/admin/v2/clusters").status_code == 200


def test_a_server_that_may_only_use_a_namespace(secure_cluster: SecureCluster, topic: str) -> None:
    """It sees neither the brokers' configuration nor the namespace's policies: it does what it may."""
    engine = secure_cluster.engine(token=Secret(secure_cluster.issuer.token("app")))
    with running(engine=engine) as server, httpx.Client(base_url=server.url, timeout=60) as rest:
        publish(rest, topic, "a")
        assert next_value(rest, subscribed(rest, topic)) == "a"
        refused = rest.post("/topics/public/elsewhere/t", json={"messages": [{"value": "a"}]})
        assert refused.status_code == 403, refused.text
        assert "the cluster does not allow it to this server" in refused.json()["message"]


class Held(NamedTuple):
    """A server that publishes and consumes under a token, which ends at `expires` (s)."""

    rest: httpx.Client
    topic: str
    instance: str
    expires: float


@contextmanager
def expiring(cluster: SecureCluster, file: Path) -> Iterator[Held]:
    """The token lasts a while longer than it takes until all is there."""
    for lasts in (3, 15, 60):
        expires = int(time.time()) + lasts  # in whole seconds, as brokers read it
        file.write_text(cluster.issuer.token("penstock-itself", expires_s=expires - time.time()))
        with ExitStack() as open_ones:
            try:
                server = open_ones.enter_context(running(engine=cluster.engine(token_file=str(file))))
                rest = open_ones.enter_context(httpx.Client(base_url=server.url, timeout=60))
                topic = f"/topics/public/default/security-{uuid4().hex[:12]}"
                publish(rest, topic, "before")
                held = Held(rest, topic, subscribed(rest, topic), expires)
                assert next_value(rest, held.instance) == "before"
            except Exception:
                if time.time() < expires:
                    raise
            if time.time() < expires:
                yield held
                return
    raise AssertionError("a server takes more than a minute to start")


def test_a_token_that_is_renewed_in_time(secure_cluster: SecureCluster, tmp_path: Path) -> None:
    """The broker asks for the new one: the connection stays."""
    file = tmp_path / "token"
    for left in reversed(range(TRIES)):
        with expiring(secure_cluster, file) as held:
            since = connected_since(secure_cluster, held.topic)
            file.write_text(secure_cluster.issuer.token("penstock-itself"))
            in_time = time.time() < held.expires
            # The broker looks every second whether a token has expired, and cuts who did not answer at the next look.
            time.sleep(max(0, held.expires + 3.5 - time.time()))
            publish(held.rest, held.topic, "after")
            assert next_value(held.rest, held.instance) == "after"
            if in_time and connected_since(secure_cluster, held.topic) == since:
                return
        # A machine that stands still for a second is too late for the broker; it does not so each time.
        assert left, "the connection was cut"


def connected_since(cluster: SecureCluster, topic: str) -> list[str]:
    """When the consumers of the subscription connected."""
    stats = cluster.plain.admin("GET", f"persistent/{topic.removeprefix('/topics/')}/stats").json()
    return [one["connectedSince"] for one in stats["subscriptions"]["s"]["consumers"]]


def says_why(ready: httpx.Response) -> bool:
    return ready.status_code == 503 and "engine.token_file" in ready.text


def test_a_token_that_is_renewed_too_late(secure_cluster: SecureCluster, tmp_path: Path) -> None:
    """The server is not ready meanwhile, and says why; then all goes on."""
    file = tmp_path / "token"
    with expiring(secure_cluster, file) as held:
        rest = held.rest
        until(lambda: says_why(rest.get("/health/ready")), held.expires - time.time() + BOUND_S)
        refused = rest.get("/admin/v2/clusters")
        assert refused.status_code == 503
        assert "engine.token_file" in refused.text
        file.write_text(secure_cluster.issuer.token("penstock-itself"))
        until(lambda: rest.get("/health/ready").status_code == 200)

        def published() -> bool:  # a publish waits as long as the producer may until it connects again
            answer = rest.post(held.topic, json={"messages": [{"value": "after"}]})
            return answer.status_code == 200 and answer.json()["messageIds"][0]["error_code"] is None

        until(published, 2 * BOUND_S)
        assert next_value(rest, held.instance) == "after"
