"""Which calls from web pages are taken, by what a browser says of them."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from penstock.protocols.audit import Audit
from penstock.protocols.http.exchange import Exchange
from penstock.server.config import check_origin
from penstock.server.dispatch import Application
from penstock.server.metrics.requests import RequestMetrics
from penstock.server.origins import Origins, is_loopback_origin, is_private_name

Headers = dict[str, str]


async def _inner(exchange: Exchange) -> None:
    await exchange.whole(200, [(b"vary", b"Accept")], b"in")


async def _socket(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.http.response.start", "status": 200, "headers": []})


async def _call(
    headers: Headers,
    *,
    allowed: tuple[str, ...] = (),
    own_names_only: bool = True,
    method: str = "POST",
    kind: str = "http",
) -> tuple[int, dict[str, list[str]], Audit]:
    audit = Audit()
    origins = Origins(allowed, audit, own_names_only=own_names_only)
    app = Application({"topics": _inner}, {"topics": _socket}, _inner, origins, RequestMetrics())
    sent: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("nothing is read")

    given = {"host": "localhost:8080", **headers}
    scope = {
        "type": kind,
        "method": method,
        "path": "/topics",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
    }
    await app(scope, receive, send)
    shown: dict[str, list[str]] = {}
    for name, value in sent[0]["headers"]:
        shown.setdefault(name.decode(), []).append(value.decode())
    shown.pop("content-length", None)
    return sent[0]["status"], shown, audit


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8080"}, 200),  # its own
        ({"origin": "https://localhost:8080"}, 200),  # its own, behind a proxy that speaks TLS
        ({"origin": "http://127.0.0.1:3000"}, 200),
        ({"origin": "http://[::1]:3000"}, 200),
        ({"origin": "http://app.localhost"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "http://127.0.0.1.evil.example"}, 403),
        ({"origin": "http://192.168.1.4"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "ftp://localhost"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
        ({"host": "evil.example:8080"}, 403),  # rebound
        ({"host": "evil.example:8080", "origin": "http://evil.example:8080"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "evil.example."}, 403),
        ({"host": "127.0.0.1:1"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "LOCALHOST."}, 200),
        ({"host": "penstock:8080"}, 200),
        ({"host": "host.docker.internal:8080"}, 200),
        ({"host": ""}, 200),  # no browser
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_by_default(kind: str, headers: Headers, status: int) -> None:
    found, _, audit = await _call(headers, kind=kind)
    assert found == status
    assert audit.forbidden == (status == 403)


async def test_an_origin_that_was_allowed() -> None:
    allowed = ("https://App.example", "null")
    status, shown, _ = await _call({"origin": "https://app.example"}, allowed=allowed)
    assert status == 200
    assert shown["access-control-allow-origin"] == ["https://app.example"]
    assert shown["vary"] == ["Accept", "Origin"]
    assert "access-control-allow-credentials" not in shown
    assert (await _call({"origin": "null"}, allowed=allowed))[0] == 200
    assert (await _call({"host": "app.example"}, allowed=allowed))[0] == 200
    for other in ("http://app.example", "https://app.example:444", "https://app.example.evil.example"):
        status, shown, _ = await _call({"origin": other}, allowed=allowed)
        assert (status, "access-control-allow-origin" in shown) == (403, False)


async def test_all_may_be_allowed() -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"host": "evil.example"},
        {"sec-fetch-site": "cross-site"},
    ):
        assert (await _call(headers, allowed=("*",)))[0] == 200


async def test_any_name_where_somebody_else_takes_care() -> None:
    assert (await _call({"host": "broker.example"}, own_names_only=False))[0] == 200
    assert (await _call({"origin": "https://evil.example"}, own_names_only=False))[0] == 403


async def test_its_own_pages_need_no_headers() -> None:
    _, shown, _ = await _call({"origin": "http://localhost:8080"})
    assert shown == {"vary": ["Accept"]}


async def test_a_browser_that_asks_before() -> None:
    asked = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "PUT",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    status, shown, _ = await _call(asked, method="OPTIONS")
    assert status == 204
    assert shown["access-control-allow-origin"] == ["http://localhost:3000"]
    assert shown["access-control-allow-headers"] == ["authorization,content-type"]
    assert "PUT" in shown["access-control-allow-methods"][0]
    assert shown["access-control-allow-private-network"] == ["true"]
    assert "Origin" in shown["vary"][0]
    asked["access-control-request-headers"] = "a\r\nset-cookie: b"
    assert "access-control-allow-headers" not in (await _call(asked, method="OPTIONS"))[1]
    asked["origin"] = "https://evil.example"
    status, shown, _ = await _call(asked, method="OPTIONS")
    assert (status, "access-control-allow-origin" in shown) == (403, False)
    # Without a question it is a request like others.
    assert (await _call({"origin": "http://localhost:3000"}, method="OPTIONS"))[0] == 200


def test_names() -> None:
    assert is_private_name("10.0.0.1")
    assert is_private_name("fe80::1")
    assert not is_private_name("a.internal.example")
    assert not is_loopback_origin("http://127.1.evil")
    assert is_loopback_origin("https://127.8.9.10:1")


@pytest.mark.parametrize(
    "good", ["https://app.example", "http://[::1]:80", "*", "null", "vscode-webview://x"]
)
def test_an_origin(good: str) -> None:
    check_origin(good)


@pytest.mark.parametrize(
    "bad", ["app.example", "https://app.example/", "https://", "https://a b", "", "https://*"]
)
def test_no_origin(bad: str) -> None:
    with pytest.raises(ValueError, match="scheme://host"):
        check_origin(bad)
