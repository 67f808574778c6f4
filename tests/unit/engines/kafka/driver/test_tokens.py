"""Tokens for OAUTHBEARER, and the endpoint by which librdkafka asks for them."""

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from tests.support.identity_provider import IdentityProvider, unsigned

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver.tokens import FileTokens, ProviderTokens, TokenEndpoint, TokenError, parse


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider(lambda: unsigned("me", 60)) as made:
        yield made


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def _settings(provider: IdentityProvider, tmp_path: Path, **more: Any) -> ClusterSettings:
    (tmp_path / "secret").write_text("it\n")
    return ClusterSettings(
        url="kafka://a",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_url=provider.url,
        oauth_client_id="me",
        oauth_client_secret_file=str(tmp_path / "secret"),
        oauth_scope="kafka",
        **more,
    )


def test_a_token_says_when_it_ends_and_whose_it_is() -> None:
    found = parse(unsigned("me", 60))
    assert found.subject == "me"
    assert 50 < found.expires_s - time.time() <= 60


@pytest.mark.parametrize("text", ["", "opaque", "a.b.c", "a.e30.c", f"a.{'W' * 5000}.c"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenError, match="not a JWT"):
        parse(text)


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = FileTokens(str(file))
    with pytest.raises(TokenError, match="cannot be read"):
        tokens.current()
    for subject in ("one", "two"):
        file.write_text(unsigned(subject, 60) + "\n")
        assert tokens.current().subject == subject
    file.write_text(unsigned("old", -1))
    with pytest.raises(TokenError, match="expired"):
        tokens.current()


def test_a_provider_is_asked_once_for_all_and_again_before_the_token_ends(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    clock = Clock()
    tokens = ProviderTokens(_settings(provider, tmp_path), clock)
    found = [tokens.current() for _ in range(5)]
    assert {one.text for one in found} == {provider.given[0]}
    assert provider.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
    clock.now += 49  # of 60
    tokens.current()
    assert len(provider.given) == 2


def test_a_token_that_counts_is_used_while_the_provider_fails(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    clock = Clock()
    tokens = ProviderTokens(_settings(provider, tmp_path), clock)
    first = tokens.current()
    provider.secret = "other"
    clock.now += 49
    assert [tokens.current(), tokens.current()] == [first, first]
    assert provider.refused == 1  # it is asked again after some seconds only
    clock.now += 10
    with pytest.raises(TokenError, match="status 401: invalid_client"):
        tokens.current()
    (tmp_path / "secret").write_text("other")
    clock.now += 10
    assert tokens.current() != first


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_secret_is_not_shown_where_a_redirect_leads(
    provider: IdentityProvider, tmp_path: Path, status: int
) -> None:
    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Location", elsewhere)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    class Elsewhere(Redirecting):
        def do_GET(self) -> None:
            shown.append(self.headers["Authorization"])
            self.send_error(404)

        def do_POST(self) -> None:
            self.do_GET()

    shown: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Redirecting) as first, HTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        elsewhere = f"http://127.0.0.1:{other.server_port}/"
        for server in (first, other):
            Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{first.server_port}/token"
        settings = msgspec.structs.replace(_settings(provider, tmp_path), oauth_token_url=url)
        with pytest.raises(TokenError, match=f"status {status}"):
            ProviderTokens(settings).current()
        for server in (first, other):
            server.shutdown()
    assert shown == []


def test_the_endpoint_gives_the_token_to_who_has_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(unsigned("me", 60))
    endpoint = TokenEndpoint(FileTokens(str(file)))
    try:
        found = endpoint.properties()
        assert found["sasl.oauthbearer.token.endpoint.url"].startswith("http://127.0.0.1:")
        status, given = _ask(found, found["sasl.oauthbearer.client.secret"])
        assert status == 200
        assert json.loads(given)["access_token"] == file.read_text()
        assert _ask(found, "no")[0] == 401
        file.unlink()
        status, said = _ask(found, found["sasl.oauthbearer.client.secret"])
        assert status == 400
        assert said.startswith(b"engine.token_file cannot be read")
    finally:
        closing = Thread(target=endpoint.close)
        closing.start()
        closing.join(60)


def _ask(found: dict[str, Any], secret: str) -> tuple[int, bytes]:
    named = base64.b64encode(f"{found['sasl.oauthbearer.client.id']}:{secret}".encode()).decode()
    request = urllib.request.Request(
        found["sasl.oauthbearer.token.endpoint.url"],
        b"grant_type=client_credentials",
        {"Authorization": f"Basic {named}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
