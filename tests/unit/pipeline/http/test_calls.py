"""Calls over a connection that the server may close at any time."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client.access import Access
from penstock.client.http import RemoteError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.http.calls import Calls

TIMEOUT_S = 30.0


@contextmanager
def serving(*connections: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers as told on each connection and closes it then; its URL, and the requests that came."""
    came: list[bytes] = []

    def work() -> None:
        for answers in connections:
            peer, _ = listener.accept()
            with peer:
                for answer in answers:
                    request = b""
                    while not request.endswith(b"\r\n\r\n"):
                        request += peer.recv(65536)
                    came.append(request)
                    head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n"
                    status, _, body = answer.partition(b"|")
                    peer.sendall(head % (status, len(body)) + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", came
        thread.join(TIMEOUT_S)


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    answers = [b'200 OK|{"n": 1}'], [b'200 OK|{"n": 2}', b"204 No Content|"]
    with serving(*answers) as (url, came), Calls(Access(url=url)) as calls:
        assert calls.call("GET", "/a") == {"n": 1}
        assert calls.call("GET", "/b") == {"n": 2}
        assert calls.call("DELETE", "/c") is None
    assert [each.split(b" ")[1] for each in came] == [b"/a", b"/b", b"/c"]


def test_a_new_connection_that_breaks_is_said() -> None:
    with serving([]) as (url, _), Calls(Access(url=url)) as calls:
        with pytest.raises(PenstockError) as raised:
            calls.call("GET", "/a")
        assert raised.value.kind is ErrorKind.UNAVAILABLE
        assert url in raised.value.message


def test_what_answers_from_elsewhere_is_refused() -> None:
    with (
        serving([b"307 Temporary Redirect|"]) as (url, _),
        Calls(Access(url=url)) as calls,
        pytest.raises(RemoteError, match="HTTP status 307"),
    ):
        calls.call("POST", "/a")


def test_refusals_and_what_is_no_json() -> None:
    answers = [b'404 Not Found|{"error_code": 40402, "message": "no such thing"}', b"200 OK|<html>"]
    with serving(answers) as (url, _), Calls(Access(url=url)) as calls:
        with pytest.raises(RemoteError, match="no such thing"):
            calls.call("GET", "/a")
        with pytest.raises(PenstockError, match="what is no JSON"):
            calls.call("GET", "/b")
