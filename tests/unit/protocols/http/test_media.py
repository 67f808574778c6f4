"""Media types and lists with q-values."""

import pytest

from penstock.protocols.http.media import choose_type, parse_media_type, weights
from penstock.protocols.kafka_rest.read import wait_seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("text/plain", ("text/plain", {})),
        (" Text/Plain ; Charset=UTF-8;", ("text/plain", {"charset": "UTF-8"})),
        ('multipart/mixed; boundary="some boundary"', ("multipart/mixed", {"boundary": "some boundary"})),
        (r'a/b; c="d\"e"; c=f', ("a/b", {"c": 'd"e'})),
        ("text", None),
        ("", None),
        ("text/plain charset=utf-8", None),
        ('a/b; c="d', None),
    ],
)
def test_media_types(text: str, found: tuple[str, dict[str, str]] | None) -> None:
    assert parse_media_type(text) == found


def test_weights() -> None:
    assert weights("A, b;q=0.5;x=1 , c;Q=0,d;q=2,,e; q=0.1") == {"a": 1, "b": 0.5, "c": 0, "d": 1, "e": 0.1}


def test_the_more_specific_wins() -> None:
    offered = ("application/json", "text/plain")
    assert choose_type("*/*, application/*;q=0.1, application/json;q=0", offered) == "text/plain"
    assert choose_type("application/*;q=0.1, */*;q=0", offered) == "application/json"
    assert choose_type("image/*", offered) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("wait=10", 10),
        ("respond-async, wait=0", 0),
        ('Wait = "7"; x', 7),
        ("wait=x", None),
        ("wait", None),
    ],
)
def test_wait(header: str | None, seconds: int | None) -> None:
    assert wait_seconds(header) == seconds
