"""Addresses in answers, as a client behind a proxy that ends TLS needs them."""

import re
from typing import Any

import httpx
import pytest

from penstock.testing.server import running

NAME = "penstock.example"
TOPIC = "/topics/public/default/t"
HEADERS = {"host": NAME, "x-forwarded-proto": "https"}


@pytest.mark.parametrize(("proxies", "scheme"), [(("127.0.0.1",), "https"), (("10.0.0.0/8",), "http")])
def test_addresses_have_the_scheme_that_a_trusted_proxy_says(proxies: tuple[str, ...], scheme: str) -> None:
    http = {"trusted_proxies": proxies, "allowed_origins": (f"https://{NAME}",)}
    with running(http=http) as server, httpx.Client(base_url=server.url, headers=HEADERS) as client:

        def get(path: str, **headers: str) -> Any:
            return client.get(path, headers=headers).raise_for_status()

        made = client.post(f"{TOPIC}/subscription/s", json={"initial_position": "earliest"}).json()
        assert made["base_uri"].startswith(f"{scheme}://{NAME}{TOPIC}/subscription/s/consumer/")
        assert get(made["base_uri"].removeprefix(f"{scheme}://{NAME}") + "/messages").json()["messages"] == []
        for page in ("/", "/kafka"):
            shown = set(re.findall(r"(https?)://penstock\.example", get(page, accept="text/html").text))
            assert shown == {scheme}
        socket = get("/asyncapi.json").json()["servers"]["penstock"]
        assert (socket["host"], socket["protocol"]) == (NAME, "wss" if scheme == "https" else "ws")
        found = get("/lookup/v2/topic/persistent/public/default/t").json()
        plain = f"http://{NAME}" + (f":{server.port}" if scheme == "https" else "")
        assert found["httpUrl"] == plain
        assert found["httpUrlTls"] == (f"https://{NAME}" if scheme == "https" else "")


def test_each_request_of_a_connection_has_the_scheme_of_its_client() -> None:
    """Also where the head came before and is not parsed again."""
    http = {"trusted_proxies": ("127.0.0.0/8",)}
    with running(http=http) as server, httpx.Client(base_url=server.url) as client:

        def scheme(proto: str | None) -> str:
            headers = {"host": "localhost", **({} if proto is None else {"x-forwarded-proto": proto})}
            shown = client.get("/asyncapi.json", headers=headers).raise_for_status()
            return str(shown.json()["servers"]["penstock"]["protocol"])

        asked = [None, "https", "https", "https", "http", "http", None, "https", None, None]
        assert [scheme(each) for each in asked] == ["wss" if each == "https" else "ws" for each in asked]
