"""Web pages of other sites against a server that nobody has to log in to: every endpoint, over real sockets."""

from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running

EVIL = Origin("https://evil.example")
APP = Origin("https://app.example")
PLACES = [
    ("POST", "/topics/public/default/t"),
    ("POST", "/topics/offsets"),
    ("POST", "/entries"),
    ("PUT", "/stages/w/1/s/0"),
    ("POST", "/kafka/topics/t/0"),
    ("DELETE", "/admin/v2/persistent/public/default/t"),
    ("GET", "/lookup/v2/topic/persistent/public/default/t"),
    ("GET", "/metrics"),
    ("GET", "/health/live"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(http={"allowed_origins": (APP,)}) as address:
        yield address


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_no_endpoint_takes_calls_of_another_site(server: Address, method: str, path: str) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for headers in ({"origin": EVIL}, {"host": "evil.example"}):
            refused = client.request(method, path, content=b"{}", headers=headers)
            assert refused.status_code == 403
            assert "http.allowed_origins" in refused.json()["message"]
            assert "access-control-allow-origin" not in refused.headers
        shown = client.request(method, path, content=b"{}", headers={"origin": APP})
        assert shown.headers["access-control-allow-origin"] == APP
        asked = {"origin": APP, "access-control-request-method": method}
        assert client.options(path, headers=asked).status_code == 204


def test_a_page_reads_all_headers_and_streams_come_through_proxies(server: Address) -> None:
    path = "/topics/public/default/streamed"
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        client.post(path, json={"messages": [{"value": "a"}]})
        for accept, named in (
            ("application/vnd.penstock.entries", "x-penstock-ledger"),
            ("application/x-ndjson", "x-accel-buffering"),
            ("text/event-stream", "x-accel-buffering"),
        ):
            headers = {"origin": APP, "accept": accept}
            with client.stream("GET", f"{path}/partitions/0/messages", headers=headers) as answer:
                assert (answer.status_code, answer.headers["content-type"]) == (200, accept)
                assert named in answer.headers
                assert answer.headers["access-control-expose-headers"] == "*"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-store, no-transform"


def test_websockets(server: Address) -> None:
    url = f"{server.ws}/ws/v2/producer/persistent/public/default/t"
    with pytest.raises(InvalidStatus) as refused, connect(url, origin=EVIL):
        pass
    assert refused.value.response.status_code == 403
    with connect(url, origin=APP) as socket:
        socket.send('{"payload": "eA=="}')
        assert '"ok"' in str(socket.recv(10))


def test_with_authentication_it_answers_to_any_name_and_tells_a_page_what_is_wrong() -> None:
    issuer = Issuer()
    with (
        running(auth=issuer.settings(super_users=("root",)), http={"allowed_origins": (APP,)}) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        tenants = "/admin/v2/tenants"
        named = {"host": "broker.example"}
        assert client.get(tenants, headers={**issuer.headers("root"), **named}).status_code == 200
        refused = client.get(tenants, headers={"origin": APP})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)
        stolen = client.get(tenants, headers={**issuer.headers("root"), "origin": EVIL})
        assert stolen.status_code == 403
        asked = {"origin": APP, "access-control-request-method": "GET"}
        assert client.options(tenants, headers=asked).status_code == 204
