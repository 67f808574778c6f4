"""Rates of roles at every endpoint: refused with the time to come back, read or delivered later; nothing is lost."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator

import httpx
import pulsar
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

import penstock
from penstock.protocols.limits import Limits
from penstock.protocols.rates import RoleRates
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running

TOPIC = "/topics/public/default/t"
BODY = {"messages": [{"value": "x" * 1000}]}
issuer = Issuer()
LIMITS = Limits(
    max_requests_per_s=20,
    role_rates={
        "once": RoleRates(max_requests_per_s=1),
        "wide": RoleRates(max_requests_per_s=0),
        "thinner": RoleRates(max_requests_per_s=0, max_bytes_per_s=1000),
        "thin": RoleRates(max_requests_per_s=0, max_bytes_per_s=20_000),
    },
)
ROLES = ("once", "wide", "thin", "thinner", "plain")


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    settings = issuer.settings(super_users=("root", *ROLES))
    with running(auth=settings, limits=LIMITS) as address:
        yield address


def client(server: Address, role: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=issuer.headers(role), trust_env=False, timeout=60)


def auth(role: str) -> penstock.AuthenticationToken:
    return penstock.AuthenticationToken(issuer.token(role))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", TOPIC),
        ("GET", f"{TOPIC}/partitions/0/offsets"),
        ("GET", "/kafka/topics"),
        ("GET", "/admin/v2/clusters"),
        ("POST", "/stages"),
        ("GET", "/ws/v2/consumer/persistent/public/default/t/s"),
    ],
)
def test_every_http_endpoint_says_when_to_come_back(method: str, path: str) -> None:
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    headers = upgrade if path.startswith("/ws") else {}
    with (
        running(auth=issuer.settings(super_users=ROLES), limits=LIMITS) as server,
        client(server, "once") as http,
    ):
        for _ in range(100):  # one a second: two of these come too soon, however slow the machine
            http.get("/admin/v2/clusters")
            answer = http.request(method, path, headers=headers)
            if answer.status_code == 429:
                break
        assert answer.status_code == 429
        assert "limits.max_requests_per_s = 1" in answer.text
        assert answer.headers["retry-after"] == "1"
        with client(server, "wide") as other:  # it is nobody else's business
            assert other.get("/admin/v2/clusters").status_code == 200


def test_who_keeps_to_it_is_served(server: Address) -> None:
    with client(server, "once") as http:
        served, until = 0, time.monotonic() + 120
        while served < 3:
            assert time.monotonic() < until
            answer = http.post(TOPIC, json=BODY)
            if answer.status_code == 429:
                time.sleep(int(answer.headers["retry-after"]))  # as it is told to
            else:
                assert answer.status_code == 200
                served += 1


def test_bytes_over_http(server: Address) -> None:
    with client(server, "thinner") as http:
        large = {"messages": [{"value": "x" * 60_000}]}
        assert http.post(TOPIC, json=large).status_code == 200  # a debt, paid by waiting
        refused = http.get(f"{TOPIC}/partitions/0/offsets")
        assert refused.status_code == 429
        assert 5 < int(refused.headers["retry-after"]) <= 20
        assert "limits.max_bytes_per_s = 1000" in refused.json()["message"]


def test_without_authentication_it_is_the_address() -> None:
    with (
        running(limits=Limits(max_requests_per_s=1)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as http,
    ):
        for _ in range(100):  # two of these come within a second, however slow the machine
            answer = http.get("/admin/v2/clusters")
            if answer.status_code == 429:
                break
        assert answer.status_code == 429
        assert "address '127.0.0.1'" in answer.json()["message"]
        assert http.get("/health/live").status_code == 200  # it asks nobody who he is


async def test_a_websocket_producer_is_read_later(server: Address) -> None:
    """60 frames at 20 a second: all are stored, none before its time."""
    url = f"{server.ws}/ws/v2/producer/persistent/public/default/ws?token={issuer.token('plain')}"
    async with connect(url) as socket:
        began = time.monotonic()
        for number in range(60):
            await socket.send(json.dumps({"payload": b64encode(b"a").decode(), "context": str(number)}))
        answers = [json.loads(await socket.recv()) for _ in range(60)]
        assert [answer["result"] for answer in answers] == ["ok"] * 60
        assert [answer["context"] for answer in answers] == [str(number) for number in range(60)]
        assert time.monotonic() - began > 1.5

        async def upgrades() -> None:
            for _ in range(1000):
                async with connect(url):
                    pass

        for number in range(200):  # ten seconds in which its role is at its rate
            await socket.send(json.dumps({"payload": b64encode(b"a").decode(), "context": str(number)}))
        with pytest.raises(InvalidStatus) as caught:
            await upgrades()
    assert caught.value.response.status_code == 429
    assert int(caught.value.response.headers["retry-after"]) >= 1


async def test_a_websocket_consumer_is_given_later(server: Address) -> None:
    with client(server, "wide") as http:
        path = "/admin/v2/persistent/public/default/given/subscription/s"
        assert http.put(path, content=b'"earliest"').status_code == 204
        for _ in range(40):
            assert http.post("/topics/public/default/given", json=BODY).status_code == 200
    url = f"{server.ws}/ws/v2/consumer/persistent/public/default/given/s?token={issuer.token('thin')}"
    async with connect(url) as socket:
        began = time.monotonic()
        for _ in range(40):
            frame = json.loads(await socket.recv())
            await socket.send(json.dumps({"messageId": frame["messageId"]}))
        assert time.monotonic() - began > 1  # more than 50 kB at 20 kB a second


@pytest.mark.parametrize("library", [pulsar, penstock], ids=["pulsar-client", "penstock"])
def test_pulsars_protocol(library: object) -> None:
    """60 messages at 20 a second, sent without waiting, then received: each once, in order."""
    limits = Limits(max_requests_per_s=40, max_bytes_per_s=200_000)
    with running(limits=limits, auth=issuer.settings(super_users=("root",))) as server:
        token = issuer.token("root")
        made = library.Client(server.pulsar, authentication=library.AuthenticationToken(token))  # type: ignore[attr-defined]
        try:
            consumer = made.subscribe("t", "s")
            producer = made.create_producer("t", batching_enabled=False)
            began = time.monotonic()
            for number in range(60):
                producer.send_async(b"%060d" % number * 100, lambda *_: None)
            producer.flush()
            got = []
            for _ in range(60):
                message = consumer.receive(timeout_millis=60_000)
                got.append(int(message.data()[:60]))
                consumer.acknowledge(message)
            assert got == list(range(60))
            assert time.monotonic() - began > 1.5
        finally:
            made.close()
