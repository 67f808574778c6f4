"""Every endpoint against every kind of wrong credential, and against right ones."""

import base64
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.support.auth import (
    ADMIN,
    AUDIENCE,
    ENDPOINTS,
    FULL,
    GRANTS,
    NAMESPACE,
    REST,
    TOPIC,
    Asked,
    headers_of,
    issuer,
    over_http,
    token,
)

from penstock.protocols.auth.mint import new_key_pair, private_signer
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running

OTHERS = {"produce": "consume", "consume": "produce", "admin": "produce"}


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    """A server with one topic, whose roles are granted their actions over the admin endpoint."""
    with running(auth=issuer.settings(audience=AUDIENCE, super_users=("root",), leeway_s=1)) as address:
        root = headers_of(token("root"))
        with httpx.Client(base_url=address.url, headers=root, trust_env=False) as client:
            assert client.put(ADMIN).status_code == 204
            assert client.post(REST, json={"messages": [{"value": "first"}]}).status_code == 200
            assert client.put(f"{ADMIN}/subscription/kept", content=b'"earliest"').status_code == 204
            for action in ("produce", "consume", "admin"):
                assert client.post(f"{GRANTS}/only-{action}", json=[action]).status_code == 204
        yield address


def _none_signed() -> str:
    return ".".join((_b64(b'{"alg":"none","typ":"JWT"}'), _b64(b'{"sub":"root"}'), ""))


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _tampered() -> str:
    head, _, signature = token("only-consume").split(".")
    return ".".join((head, _b64(b'{"sub":"root","aud":"these tests"}'), signature))


WRONG: dict[str, Callable[[], str | None]] = {
    "none": lambda: None,
    "garbage": lambda: "garbage",
    "an empty JWT": lambda: "..",
    "another key": lambda: Issuer("another key of the same length, which nobody told the server of").token(
        "root", aud=AUDIENCE
    ),
    "tampered with": _tampered,
    "expired": lambda: token("root", expires_s=-2),
    "not yet valid": lambda: token("root", nbf=time.time() + 60),
    "no algorithm": _none_signed,
    "another algorithm": lambda: private_signer(new_key_pair("ES256")[0]).sign(
        {"sub": "root", "aud": AUDIENCE}
    ),
    "another audience": lambda: token("root", aud="somebody else"),
    "no audience": lambda: issuer.token("root"),
    "no role": lambda: token("", sub=""),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_wrong_credentials(server: Address, endpoint: str, wrong: str) -> None:
    given = WRONG[wrong]()
    answer = ENDPOINTS[endpoint][0](server, given)
    assert answer.status == 401, answer.text
    _tells_no_token(answer, given)
    if endpoint.startswith(("rest", "kafka", "websocket", "admin", "lookup")):
        assert answer.headers["www-authenticate"].startswith('Bearer realm="penstock"')


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_right_token_without_permission(server: Address, endpoint: str) -> None:
    given = token("stranger")
    answer = ENDPOINTS[endpoint][0](server, given)
    assert answer.status == 403, answer.text
    _tells_no_token(answer, given)
    assert "stranger" in answer.text  # what is missing is said


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_permission_for_something_else(server: Address, endpoint: str) -> None:
    ask, action = ENDPOINTS[endpoint]
    answer = ask(server, token(f"only-{OTHERS[action]}"))
    anything = endpoint in {
        "pulsar partitions",
        "lookup",
        "kafka topic",
        "admin partitions",
        "admin stats",
        "admin topics",
        "admin schema",
        # Nothing of these may be consumed: they have nothing.
        "websocket pattern",
        "rest offsets of a pattern",
    }
    assert (answer.status == 403) != anything, answer.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_right_credentials(server: Address, endpoint: str) -> None:
    ask, action = ENDPOINTS[endpoint]
    for role in (f"only-{action}", "only-admin", "root"):
        answer = ask(server, token(role))
        assert answer.status not in (401, 403), f"{role}: {answer.text}"
        assert answer.status < 500 or answer.status == 504, answer.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_permission_that_is_revoked(server: Address, endpoint: str) -> None:
    ask, action = ENDPOINTS[endpoint]
    with httpx.Client(base_url=server.url, headers=headers_of(token("root")), trust_env=False) as client:
        assert client.post(f"{GRANTS}/guest", json=[action]).status_code == 204
        given = token("guest")
        assert ask(server, given).status not in (401, 403)
        assert client.delete(f"{GRANTS}/guest").status_code == 204
        assert ask(server, given).status == 403


def test_what_is_open(server: Address) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for path in ("/health/live", "/health/ready", "/docs", "/openapi.json", "/asyncapi.json", "/"):
            assert client.get(path).status_code == 200
        for path in ("/metrics", "/kafka", "/kafka/topics", "/admin/v2/clusters", "/admin/v2/brokers/health"):
            assert client.get(path).status_code == 401
        assert client.get("/metrics", headers=headers_of(token("stranger"))).status_code == 200
        assert client.get("/kafka/topics", headers=headers_of(token("stranger"))).json() == []
        assert client.get("/kafka/topics", headers=headers_of(token("only-produce"))).json() == ["locked"]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/kafka",
        "/kafka/topics",
        "/stages/writer",
        "/admin/v2/proxy-stats/metrics",
        "/admin/v2/proxy-stats/stats",
        f"/admin/v2/proxy-stats/persistent/{NAMESPACE}/{TOPIC}/stats",
        "/admin/v2/clusters",
        "/admin/v2/tenants",
    ],
)
def test_wrong_credentials_for_what_names_no_topic(server: Address, path: str, wrong: str) -> None:
    given = WRONG[wrong]()
    answer = over_http("GET", path)(server, given)
    assert answer.status == 401, answer.text
    assert answer.headers["www-authenticate"].startswith('Bearer realm="penstock"')
    _tells_no_token(answer, given)


def test_a_batch_of_nothing_takes_no_writers_name(server: Address) -> None:
    """It names no topic to be asked a permission of: who may publish nowhere may not commit it either."""
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        path, body = "/stages/taken/9/commit", {"stages": []}
        for role in ("stranger", "only-consume"):
            assert client.post(path, json=body, headers=headers_of(token(role))).status_code == 403
        assert client.delete("/stages/taken/9", headers=headers_of(token("stranger"))).status_code == 403
        done = client.post(path, json=body, headers=headers_of(token("only-produce")))
        assert (done.status_code, done.json()["repeated"]) == (200, False)


def test_a_token_in_the_query_of_any_endpoint(server: Address) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        path = f"{REST}/partitions/0/offsets"
        assert client.get(path, params={"token": token("only-consume")}).status_code == 200
        refused = client.get(path, params={"token": token("stranger")})
        assert refused.status_code == 403
        # A header goes before it.
        both = client.get(path, params={"token": token("root")}, headers=headers_of("garbage"))
        assert both.status_code == 401


def _tells_no_token(answer: Asked, given: str | None) -> None:
    if given and len(given) > 20:
        assert given not in answer.text
        assert given.split(".")[-1] not in answer.text or not given.split(".")[-1]
    assert FULL not in answer.text or answer.status == 403
