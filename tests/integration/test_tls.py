"""Every endpoint over TLS, with the clients that people have."""

import asyncio
import json
import os
import select
import shutil
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from tests.support.tls import Pki
from websockets.asyncio.client import connect

import penstock
from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.http.entries import entries
from penstock.protocols.limits import Limits
from penstock.testing.server import Address, launch, running

WS = "/ws/v2/producer/persistent/public/default/ws"
JS = Path(__file__).parents[1] / "js"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def server(pki: Pki) -> Iterator[Address]:
    with pki.server(plain=True) as address:
        yield address


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_http(server: Address, pki: Pki) -> None:
    with httpx.Client(base_url=server.https, verify=pki.trust()) as http:
        answer = http.post("/topics/public/default/http", json={"messages": [{"value": "a"}]})
        assert answer.status_code == 200, answer.text
        found = http.get("/topics/public/default/http/partitions/0/messages").json()
    assert [message["value"] for message in found["messages"]] == ["a"]


def test_a_stranger_is_not_trusted(server: Address) -> None:
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(f"{server.https}/health/live")


async def test_websockets(server: Address, pki: Pki) -> None:
    async with connect(server.wss + WS, ssl=pki.trust()) as ws:
        await ws.send(json.dumps({"payload": b64encode(b"a").decode()}))
        assert json.loads(await ws.recv())["result"] == "ok"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_node(server: Address, pki: Pki) -> None:
    ran = subprocess.run(
        ["node", JS / "producer.mjs", server.wss],
        env={"NODE_EXTRA_CA_CERTS": pki.ca_file, "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert '"result":"ok"' in ran.stdout.replace(" ", ""), ran.stderr


@pytest.mark.parametrize("endpoint", ["pulsar_tls", "https"])
def test_the_official_client(server: Address, pki: Pki, endpoint: str) -> None:
    client = pulsar.Client(
        getattr(server, endpoint), tls_trust_certs_file_path=pki.ca_file, tls_validate_hostname=True
    )
    try:
        consumer = client.subscribe(f"official-{endpoint}", "s")
        client.create_producer(f"official-{endpoint}").send(b"a")
        message = consumer.receive(30_000)
        assert message.data() == b"a"
        consumer.acknowledge(message)
    finally:
        client.close()


@pytest.mark.parametrize("endpoint", ["pulsar_tls", "https"])
def test_our_client(server: Address, pki: Pki, endpoint: str) -> None:
    with penstock.Client(
        getattr(server, endpoint), tls_trust_certs_file_path=pki.ca_file, tls_validate_hostname=True
    ) as client:
        consumer = client.subscribe(f"ours-{endpoint}", "s")
        client.create_producer(f"ours-{endpoint}").send(b"a")
        assert consumer.receive(30_000).data() == b"a"


def test_our_client_trusts_no_stranger(server: Address) -> None:
    with (
        penstock.Client(server.pulsar_tls, operation_timeout_seconds=2) as client,
        pytest.raises(penstock.PulsarException),
    ):
        client.create_producer("stranger")


def test_the_http_client(server: Address, pki: Pki) -> None:
    topic = TopicName.parse("http-client")
    with HttpClient(Access(url=server.https, ca_file=pki.ca_file)) as http:
        http.produce(topic, [{"value": "a"}])
        with entries(http.access, topic, 0, 0, 1) as stream:
            assert stream.read(1 << 20)


def test_lookups_name_the_endpoints_of_the_clients_kind(server: Address, pki: Pki) -> None:
    found = httpx.get(
        f"{server.https}/lookup/v2/topic/persistent/public/default/t", verify=pki.trust()
    ).json()
    assert found["brokerUrlTls"] == server.pulsar_tls
    assert found["brokerUrl"] == server.pulsar
    assert (found["httpUrl"], found["httpUrlTls"]) == (server.url, server.https)


def test_only_tls(pki: Pki) -> None:
    with pki.server() as server:
        assert server.url == server.https
        assert server.pulsar == ""
        assert httpx.get(f"{server.url}/health/live", verify=pki.trust()).status_code == 200


@pytest.mark.parametrize("endpoint", ["https", "pulsar_tls"])
def test_plain_http_at_a_tls_port_does_not_hang(server: Address, endpoint: str) -> None:
    with socket.create_connection(("127.0.0.1", port_of(getattr(server, endpoint))), timeout=60) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while plain.recv(1000):
            pass


def test_a_slow_handshake_is_dropped(pki: Pki) -> None:
    with pki.server(handshake_ms=200) as server:
        for url in (server.https, server.pulsar_tls):
            with socket.create_connection(("127.0.0.1", port_of(url)), timeout=60) as silent:
                try:
                    assert silent.recv(1) == b""
                except ConnectionResetError:
                    pass


def test_old_protocols_are_refused(pki: Pki) -> None:
    with pki.server(min_version="1.3") as server:
        context = pki.trust()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.https}/health/live", verify=context)
        assert httpx.get(f"{server.https}/health/live", verify=pki.trust()).status_code == 200


# -- the clients' own certificates


@pytest.fixture(scope="module")
def demanding(pki: Pki) -> Iterator[Address]:
    with pki.server(client_certificates="required", client_ca_file=pki.client_ca_file) as address:
        yield address


def test_a_certificate_is_demanded(demanding: Address, pki: Pki) -> None:
    url = f"{demanding.https}/health/live"
    assert httpx.get(url, verify=pki.trust(pki.client("ann"))).status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(url, verify=pki.trust())
    stranger = pki.client("mallory", pki.servers)  # whom the servers' CA signed, not the clients'
    with pytest.raises(httpx.TransportError):
        httpx.get(url, verify=pki.trust(stranger))


def test_our_access_has_a_certificate(demanding: Address, pki: Pki) -> None:
    cert, key = pki.client("bob")
    with HttpClient(Access(url=demanding.https, ca_file=pki.ca_file, cert_file=cert, key_file=key)) as http:
        http.create_topic(TopicName.parse("mine"))


def test_clients_of_the_binary_endpoint_have_certificates(demanding: Address, pki: Pki) -> None:
    files = pki.client("carol")
    official = pulsar.Client(
        demanding.pulsar_tls,
        authentication=pulsar.AuthenticationTLS(*files),
        tls_trust_certs_file_path=pki.ca_file,
    )
    try:
        official.create_producer("official").send(b"a")
    finally:
        official.close()
    with penstock.Client(
        demanding.pulsar_tls,
        authentication=penstock.AuthenticationTLS(*files),
        tls_trust_certs_file_path=pki.ca_file,
    ) as client:
        client.create_producer("ours").send(b"a")


def test_a_certificate_is_welcome(pki: Pki) -> None:
    with pki.server(client_certificates="optional", client_ca_file=pki.client_ca_file) as server:
        url = f"{server.https}/health/live"
        assert httpx.get(url, verify=pki.trust()).status_code == 200
        assert httpx.get(url, verify=pki.trust(pki.client("dora"))).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=pki.trust(pki.client("eve", pki.servers)))


async def test_many_at_once(server: Address, pki: Pki) -> None:
    async with httpx.AsyncClient(base_url=server.https, verify=pki.trust()) as http:
        answers = await asyncio.gather(*(http.get("/health/live") for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200}


def test_the_command_line(pki: Pki, tmp_path: Path) -> None:
    """`penstock serve` with TLS, and a command that talks to it with files named in the environment."""
    settings = {
        "http.listen": "off",
        "http.tls_listen": "127.0.0.1:0",
        "pulsar.tls_listen": "127.0.0.1:0",
        "tls.cert_file": pki.cert_file,
        "tls.key_file": pki.key_file,
        "tls.client_ca_file": pki.client_ca_file,
        "tls.client_certificates": "required",
    }
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    cert, key = pki.client("operator")
    environment = {
        "PENSTOCK_TLS_CA_FILE": pki.ca_file,
        "PENSTOCK_TLS_CERT_FILE": cert,
        "PENSTOCK_TLS_KEY_FILE": key,
    }
    with launch(tmp_path, *flags, environment=environment) as server:
        assert server.url.startswith("https://")
        assert server.pulsar_tls.startswith("pulsar+ssl://")
        for command in (["topics", "create", "t"], ["topics", "list"]):
            ran = subprocess.run(
                [sys.executable, "-m", "penstock", *command, "--url", server.url],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["topic"] == "persistent://public/default/t"


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    """The one who asks may have been given another meanwhile."""
    file = tmp_path / "token"
    file.write_text("first")
    seen = []
    with HttpClient(Access(url="http://127.0.0.1:1", token_file=str(file))) as http:
        http._session = httpx.Client(
            transport=httpx.MockTransport(
                lambda request: (seen.append(request.headers["authorization"]), httpx.Response(204))[1]
            )
        )
        http.call("GET", "/a")
        file.write_text("second")
        http.call("GET", "/a")
    assert seen == ["Bearer first", "Bearer second"]


def test_a_slow_reader_is_reset(pki: Pki) -> None:
    limits = Limits(stall_ms=300, min_bytes_per_s=1)
    with running(tls=pki.settings(), limits=limits) as server:
        body = {"messages": [{"value": "x" * 1_000_000} for _ in range(5)]}
        path = "/topics/public/default/big"
        for _ in range(3):
            assert httpx.post(server.url + path, json=body).status_code == 200
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.settimeout(60)
            plain.connect(("127.0.0.1", port_of(server.https)))
            with pki.trust().wrap_socket(plain, server_hostname="localhost") as slow:
                slow.sendall(
                    b"GET %s/partitions/0/messages?offset=0 HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode()
                )
                poll = select.poll()
                poll.register(slow, 0)
                assert poll.poll(60_000), "the connection is still there"
