"""A URL with a password is no text for messages."""

import pytest

from penstock.client.access import without_password
from penstock.client.http import unreachable


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
