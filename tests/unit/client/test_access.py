"""A URL with a password is no text for messages."""

import pytest

from penstock.client.access import Access, without_password
from penstock.client.http import unreachable
from penstock.model.errors import PenstockError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:se%40cret@host:8443/p", "https://me:…@host:8443/p"),
        ("http://:secret@host", "http://:…@host"),
        ("http://me@host:80", "http://me@host:80"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_messages_have_no_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert unreachable(url, OSError("refused")).message == f"{shown} cannot be reached: refused"


def test_a_password_is_hidden_in_what_is_no_address() -> None:
    assert without_password("me:secret@host:80") == "me:…@host:80"
    with pytest.raises(PenstockError, match="'http://me:…@host:abc' is no address"):
        Access(url="http://me:secret@host:abc")


@pytest.mark.parametrize("url", ["HTTPS://host:1/p/", " Https://host:1/p"])
def test_the_scheme_of_an_address_may_be_in_capitals(url: str) -> None:
    access = Access(url=url)
    assert access.url == "https://host:1/p"
    context = access.tls()
    assert context is not None
    assert context.check_hostname


@pytest.mark.parametrize("url", ["http://host:abc", "http://host:70000", "http://:80", "ftp://host"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(PenstockError, match="is no address"):
        Access(url=url)
