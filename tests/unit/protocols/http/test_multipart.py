"""Multipart bodies, as clients and as people write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import PenstockError
from penstock.protocols.http.media import parse_multipart

BODY = (
    "ignored\n--some boundary\nContent-Type: text/plain; charset=utf-8\n\nthis is message 1\n"
    "--some boundary\nX: 1\ny:2\n\nthis is message 2\n--some boundary--\nignored\n"
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_parts(newline: str) -> None:
    first, second = parse_multipart(BODY.replace("\n", newline).encode(), "some boundary")
    assert first.headers == {"content-type": "text/plain; charset=utf-8"}
    assert first.body == b"this is message 1"
    assert second.headers == {"x": "1", "y": "2"}
    assert second.body == b"this is message 2"


def test_a_part_may_lack_headers_or_body() -> None:
    parts = parse_multipart(b"--b\r\n\r\nx\r\n--b  \r\nA: 1\r\n--b\r\nA: 1\r\n\r\n\r\n--b--", "b")
    assert [(part.headers, part.body) for part in parts] == [({}, b"x"), ({"a": "1"}, b""), ({"a": "1"}, b"")]


def test_what_only_looks_like_a_boundary_is_content() -> None:
    inside = b"\n--b\n--b--\r\n--bb\r\n --b\r\r\n--b-\r\n"
    (part,) = parse_multipart(b"--b\r\n\r\n" + inside + b"\r\n--b--\r\n", "b")
    assert part.body == inside


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_any_bytes_come_through(bodies: list[bytes]) -> None:
    boundary = "f3a1c0ffee"
    body = b"".join(b"--f3a1c0ffee\r\n\r\n" + one + b"\r\n" for one in bodies) + b"--f3a1c0ffee--"
    assert [part.body for part in parse_multipart(body, boundary)] == bodies


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"--b", b"--b\r\n", b"--b\r\n\r\nx", b"--b\r\n\r\nx\r\n--b\r\n", b"--b\r\nno header\r\n\r\nx\r\n--b--",
     b"--b\r\nbad name: x\r\n\r\n\r\n--b--", b"--b--\r\n", b"x--b\r\n\r\n\r\n--b--"],
)  # fmt: skip
def test_broken_ones_are_told(body: bytes) -> None:
    with pytest.raises(PenstockError, match="broken"):
        parse_multipart(body, "b")


@pytest.mark.parametrize("boundary", ["", "x" * 71, "a\nb", "ends with space ", "ü"])
def test_unusable_boundaries_are_told(boundary: str) -> None:
    with pytest.raises(PenstockError, match="boundary"):
        parse_multipart(b"--\r\n\r\n\r\n----", boundary)


def test_bounds() -> None:
    with pytest.raises(PenstockError, match="too large"):
        parse_multipart(b"--b\r\nA: " + b"x" * 9000 + b"\r\n\r\n\r\n--b--", "b")
    with pytest.raises(PenstockError, match="more than"):
        parse_multipart(b"--b\r\n\r\n\r\n" * 10_001 + b"--b--", "b")


@pytest.mark.parametrize(
    "junk", [b"--b" + b" " * 100, b"\r\n--b \t", b"A:" + b" " * 8000 + b"x\r\n\r\n\r\n--b\r\n"]
)
def test_hostile_ones_take_no_time(junk: bytes) -> None:
    body = b"--b\r\n" + junk * (1_000_000 // len(junk))
    start = time.thread_time()
    with pytest.raises(PenstockError):
        parse_multipart(body, "b")
    assert time.thread_time() - start < 10  # some 50 ms; were it quadratic, minutes
