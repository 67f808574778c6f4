"""Every endpoint behind a proxy: it names whom it acts for, and both must be allowed what is asked for."""

import json
import logging
from collections.abc import Iterator

import httpx
import pulsar
import pytest
from tests.support.auth import (
    ADMIN,
    AUDIENCE,
    ENDPOINTS,
    FULL,
    GRANTS,
    NAMESPACE,
    REST,
    SHIPPED,
    TOPIC,
    Through,
    connected,
    headers_of,
    issuer,
    token,
    upgrade,
)
from tests.support.pulsar_proxy import pulsar_proxy

import penstock
from penstock.client.access import Access
from penstock.client.errors import AuthenticationError, AuthorizationError
from penstock.client.http import HttpClient, RemoteError
from penstock.protocols.limits import Limits
from penstock.protocols.rates import RoleRates
from penstock.testing.server import Address, running

PROXIES = ("proxy", "gateway", "powerless")


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    settings = issuer.settings(
        audience=AUDIENCE,
        super_users=("root", "proxy"),  # as proxies of Pulsar usually are
        proxy_roles=PROXIES,
        leeway_s=1,
    )
    with running(auth=settings) as address:
        root = headers_of(token("root"))
        with httpx.Client(base_url=address.url, headers=root, trust_env=False) as client:
            assert client.put(ADMIN).status_code == 204
            assert client.post(REST, json={"messages": [{"value": "first"}]}).status_code == 200
            assert client.put(f"{ADMIN}/subscription/kept", content=b'"earliest"').status_code == 204
            for role, actions in (("alice", ["admin"]), ("only-consume", ["consume"])):
                assert client.post(f"{GRANTS}/{role}", json=actions).status_code == 204
        yield address


# What each endpoint answers to one who is admitted and may do everything is in test_auth_endpoints.
@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("role", "original", "allowed"),
    [
        ("proxy", "alice", True),
        ("proxy", "stranger", False),  # a proxy that may do everything gives nothing away
        ("powerless", "alice", False),
        ("proxy", "gateway", False),
        ("proxy", "", False),
        ("alice", "root", False),
        ("root", "alice", False),
    ],
)
def test_both_are_asked(server: Address, endpoint: str, role: str, original: str, allowed: bool) -> None:
    given = token(role)
    answer = ENDPOINTS[endpoint][0](server, Through(given, original))
    assert (answer.status not in (401, 403)) is allowed, answer.text
    if not allowed:
        assert answer.status == 403, answer.text
        assert given not in answer.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_proxy_is_nobody_itself(server: Address, endpoint: str) -> None:
    answer = ENDPOINTS[endpoint][0](server, token("proxy"))
    assert answer.status == 403, answer.text
    assert "must name the original principal" in answer.text


def test_what_pulsars_proxy_hands_on_with_the_clients_own_token(server: Address) -> None:
    headers = {**headers_of(token("alice")), "X-Original-Principal": "alice"}
    assert httpx.get(server.url + ADMIN, headers=headers).status_code == 200
    several = [*headers.items(), ("X-Original-Principal", "root")]
    assert httpx.get(server.url + ADMIN, headers=several).status_code == 400


def test_without_authentication_the_header_is_passed_over() -> None:
    with running() as address:
        answer = httpx.post(
            address.url + REST,
            json={"messages": [{"value": "hello"}]},
            headers={"X-Original-Principal": "somebody"},
        )
        assert answer.status_code == 200
        with penstock.Client(address.pulsar, original_principal="somebody") as client:
            client.create_producer(TOPIC).send(b"hello")


@pytest.mark.parametrize(
    ("credentials", "error"),
    [
        ("alice", None),
        ("only-consume", AuthorizationError),
        (None, AuthenticationError),
    ],
)
def test_our_client_forwards_credentials(
    server: Address, credentials: str | None, error: type[Exception] | None
) -> None:
    shown = token(credentials) if credentials else "junk"
    client = penstock.Client(
        server.pulsar,
        authentication=penstock.AuthenticationToken(token("proxy")),
        operation_timeout_seconds=30,
        original_principal="alice",
        original_authentication=penstock.AuthenticationToken(shown),
    )
    try:
        if error is None:
            client.create_producer(TOPIC).send(b"from alice")
        else:
            with pytest.raises(error):
                client.create_producer(TOPIC)
    finally:
        client.close()


def test_our_client_looks_up_over_http(server: Address) -> None:
    client = penstock.Client(
        server.url,
        authentication=penstock.AuthenticationToken(token("proxy")),
        operation_timeout_seconds=30,
        original_principal="alice",
    )
    try:
        client.create_producer(TOPIC).send(b"by HTTP lookup")
    finally:
        client.close()
    for original, fails in (("alice", False), ("stranger", True)):
        access = Access(url=server.url, token=token("proxy"), original_principal=original)
        with HttpClient(access) as admin:
            if fails:
                with pytest.raises(RemoteError) as refused:
                    admin.call("GET", ADMIN)
                assert refused.value.status == 403
            else:
                assert admin.call("GET", ADMIN)["name"] == FULL


def test_figures_and_the_audit_log_show_both(server: Address, caplog: pytest.LogCaptureFixture) -> None:
    given = Through(token("proxy"), "alice")
    with connected(server, given) as client, caplog.at_level(logging.INFO, "penstock.audit"):
        client.create_producer(FULL)
        client.subscribe(FULL, "seen", penstock.ConsumerType.Shared)
        stats = httpx.get(f"{server.url}{ADMIN}/stats", headers=headers_of(given)).json()
        (publisher,) = stats["publishers"]
        (consumer,) = stats["subscriptions"]["seen"]["consumers"]
        assert httpx.put(f"{server.url}{ADMIN}-more", headers=headers_of(given)).status_code == 204
        refused = Through(token("proxy"), "only-consume")
        assert httpx.put(f"{server.url}{ADMIN}-other", headers=headers_of(refused)).status_code == 403
        nobody = Through(token("alice"), "root")
        assert httpx.put(f"{server.url}{ADMIN}-other", headers=headers_of(nobody)).status_code == 403
    for one in (publisher, consumer):
        assert (one["role"], one["proxyRole"]) == ("alice", "proxy")
    said = [vars(record) for record in caplog.records if record.name == "penstock.audit"]
    about = [(one["message"], one["role"], one.get("proxy")) for one in said]
    assert about == [
        ("administered", "alice", "proxy"),
        ("permission refused", "only-consume", "proxy"),
        ("permission refused", "alice", None),
    ]
    assert (said[-1]["action"], said[-1]["where"]) == ("act for", "root")


def test_consumers_belong_to_the_original(server: Address) -> None:
    """The same role owns its REST consumer, with and without a proxy; another through the same proxy does not."""
    path = f"{server.url}{REST}/subscription/own"
    made = httpx.post(path, json={"subscription_type": "Shared"}, headers=headers_of(token("alice"))).json()
    messages = f"{made['base_uri']}/messages"
    mine, other = Through(token("proxy"), "alice"), Through(token("proxy"), "only-consume")
    assert httpx.get(messages, headers=headers_of(mine)).status_code == 200
    assert httpx.get(messages, headers=headers_of(other)).status_code == 404


def test_rates_are_the_originals() -> None:
    limits = Limits(role_rates={"alice": RoleRates(max_requests_per_s=1)})
    settings = issuer.settings(
        audience=AUDIENCE, super_users=("proxy", "alice", "bob"), proxy_roles=("proxy",)
    )
    with running(auth=settings, limits=limits) as address:

        def ask(original: str) -> int:
            headers = headers_of(Through(token("proxy"), original))
            return httpx.get(f"{address.url}/admin/v2/clusters", headers=headers).status_code

        assert 429 in [ask("alice") for _ in range(50)]
        assert {ask("bob") for _ in range(10)} == {200}


@pytest.mark.parametrize("loser", ["proxy", "carol"])
def test_a_stream_ends_when_either_loses_the_permission(loser: str) -> None:
    settings = issuer.settings(audience=AUDIENCE, super_users=("root",), proxy_roles=("proxy",))
    with running(auth=settings) as address:
        root = httpx.Client(base_url=address.url, headers=headers_of(token("root")), trust_env=False)
        with root:
            for role in ("proxy", "carol"):
                assert root.post(f"{GRANTS}/{role}", json=["consume", "produce"]).status_code == 204
            root.post(REST, json={"messages": [{"value": "first"}]}).raise_for_status()
            headers = {**headers_of(Through(token("proxy"), "carol")), "Accept": "application/x-ndjson"}
            path = f"{address.url}{REST}/partitions/0/messages?follow=true"
            with httpx.stream("GET", path, headers=headers, timeout=60) as stream:
                lines = stream.iter_lines()
                assert json.loads(next(lines))
                assert root.delete(f"{GRANTS}/{loser}").status_code == 204
                assert not [line for line in lines if "error" not in line and line.strip()]


def test_upgrades_name_it_in_the_header(server: Address) -> None:
    path = f"/ws/v2/producer/persistent/{NAMESPACE}/{TOPIC}"
    given = headers_of(token("proxy"))
    assert upgrade(server, path, given).status == 403
    assert upgrade(server, path, {**given, "X-Original-Principal": "alice"}).status == 101
    assert upgrade(server, path, {**given, "X-Original-Principal": "stranger"}).status == 403
    assert httpx.post(server.url + SHIPPED, headers=given).status_code == 403


@pytest.mark.parametrize("forwards", [False, True])
def test_clients_of_pulsars_proxy_have_their_own_rights(server: Address, forwards: bool) -> None:
    """The official client through what Pulsar's proxy does; the proxy itself is a super user."""

    def client_of(url: str, role: str, timeout_s: int = 30) -> pulsar.Client:
        return pulsar.Client(
            url,
            authentication=pulsar.AuthenticationToken(token(role)),
            operation_timeout_seconds=timeout_s,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    with pulsar_proxy(server.pulsar, token("proxy"), forwards=forwards) as url:
        client = client_of(url, "alice")
        try:
            producer = client.create_producer(FULL)
            consumer = client.subscribe(FULL, f"through-{forwards}")
            producer.send(b"through the proxy")
            assert consumer.receive(30_000).data() == b"through the proxy"
        finally:
            client.close()
        for role in ("stranger", "only-consume", "gateway"):
            client = client_of(url, role, 1)  # it tries again until its time is over
            try:
                with pytest.raises(pulsar.PulsarException):
                    client.create_producer(FULL)
            finally:
                client.close()


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (token("proxy"), 403),
        (Through(token("proxy"), "alice"), 200),
        (Through(token("alice"), "root"), 403),
    ],
)
def test_metrics_hold_to_it_too(server: Address, given: str, status: int) -> None:
    assert httpx.get(f"{server.url}/metrics", headers=headers_of(given)).status_code == status
