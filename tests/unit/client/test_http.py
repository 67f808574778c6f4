"""Answers that are no answers of a Penstock's, and requests that cannot be sent."""

import json
from typing import Any

import httpx
import pytest

from penstock.client.access import Access
from penstock.client.http import HttpClient, RemoteError
from penstock.model.errors import ErrorKind, PenstockError


def client(status: int, body: bytes = b"", **headers: str) -> HttpClient:
    """One whose server always answers this."""
    made = HttpClient("http://me:secret@server:1")

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=body, headers=headers)

    made._session = httpx.Client(transport=httpx.MockTransport(answer))
    return made


@pytest.mark.parametrize("status", [301, 302, 304, 307])
@pytest.mark.parametrize("method", ["call", "fetch"])
def test_a_redirection_is_no_success(status: int, method: str) -> None:
    made = client(status, b"<html>", location="https://me:secret@login/")
    with pytest.raises(RemoteError, match="redirection to https://me:…@login/") as raised:
        getattr(made, method)("POST", "/x")
    assert raised.value.status == status


def test_the_servers_own_words_if_another_process_has_to_answer() -> None:
    body: dict[str, Any] = {"error_code": 42101, "message": "another process has the consumer instance"}
    with pytest.raises(RemoteError, match=r"^another process has the consumer instance$") as raised:
        client(421, json.dumps(body).encode()).call("GET", "/x")
    assert raised.value.kind is ErrorKind.MISDIRECTED
    assert raised.value.retriable


@pytest.mark.parametrize("body", [b"<html>", b"\xff"])
def test_a_page_is_no_answer(body: bytes) -> None:
    with pytest.raises(PenstockError, match=r"^http://me:…@server:1 answers what is no JSON"):
        client(200, body).call("GET", "/x")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b"<html>\n<head>\n<TITLE>Error 405\nNot Allowed</TITLE>\n</head>",
            "HTTP status 405: Error 405 Not Allowed",
        ),
        (b"Cannot\n construct it", "HTTP status 405: Cannot construct it"),
        (b"", "HTTP status 405"),
        (b'{"reason": "it is\\nnot"}', "it is\nnot"),
    ],
)
def test_what_is_no_error_of_ours_is_said_in_a_line(body: bytes, said: str) -> None:
    with pytest.raises(RemoteError) as raised:
        client(405, body).call("GET", "/x")
    assert raised.value.message == said


def test_requests_that_cannot_be_sent() -> None:
    with HttpClient("http://host") as made, pytest.raises(PenstockError, match="cannot be sent"):
        made.call("GET", "/x\n")
    with HttpClient("http://" + "x" * 70 + ".example") as made, pytest.raises(PenstockError):
        made.call("GET", "/x")
    with (
        HttpClient(Access(url="http://host", token="\xe9")) as made,
        pytest.raises(PenstockError, match="ASCII"),
    ):
        made.call("GET", "/x")
    with pytest.raises(PenstockError, match="cannot be sent"):
        client(200).call("GET", "/x", headers={"X-Some": "\u20ac"})
