"""Which representation a client gets, and what it looks like."""

import json

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.kafka_rest import representations
from penstock.protocols.kafka_rest.framing import render
from penstock.protocols.kafka_rest.representations import Form, negotiate


def form(**headers: str) -> Form:
    return negotiate({name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/x-kafka"),
        ("", "application/x-kafka"),
        ("*/*", "application/x-kafka"),
        ("text/*", "text/plain"),
        ("application/json", "application/json"),
        ("text/plain;q=0.5, application/json;q=0.9", "application/json"),
        ("*/*;q=0.1, text/json", "text/json"),
        ("text/plain;q=0, text/*", "text/json"),
        ("application/x-kafka;q=0, */*", "text/plain"),
        ("TEXT/PLAIN", "text/plain"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/plain"),
    ],
)
def test_accept(accept: str | None, media_type: str) -> None:
    assert form(**({} if accept is None else {"accept": accept})).media_type == media_type


@pytest.mark.parametrize(
    ("accept", "charset"),
    [
        ("utf-8", "utf-8"),
        ("iso-8859-1, utf-8;q=0.5", "iso-8859-1"),
        ("iso-8859-1, utf-8", "utf-8"),
        ("klingon, *;q=0.1", "utf-8"),
        ("klingon, UTF-16LE;q=0.1", "utf-16le"),
    ],
)
def test_accept_charset(accept: str, charset: str) -> None:
    assert form(accept="text/plain", accept_charset=accept).charset == charset


@pytest.mark.parametrize(
    ("accept", "gzip"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("x-gzip", True),
        ("*", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("identity, gzip;q=0.5", False),
        ("identity;q=0, gzip;q=0.5", True),
        ("br", False),
        ("", False),
    ],
)
def test_accept_encoding(accept: str, gzip: bool) -> None:
    assert form(accept_encoding=accept).gzip is gzip


@pytest.mark.parametrize(
    "headers",
    [
        {"accept": "image/png"},
        {"accept": "text/plain;q=0"},
        {"accept": "text/plain", "accept_charset": "klingon"},
        {"accept": "text/plain", "accept_charset": "rot13, base64, unicode_escape, idna, utf-7"},
        {"accept_encoding": "identity;q=0"},
        {"accept_encoding": "*;q=0"},
    ],
)
def test_what_cannot_be_had_is_told(headers: dict[str, str]) -> None:
    with pytest.raises(PenstockError) as caught:
        form(**headers)
    assert caught.value.kind is ErrorKind.NOT_ACCEPTABLE


def test_text_is_lines() -> None:
    frames, _ = render(["größe €".encode(), b"", b"cut \xe2\x82", b"next"])
    assert Form("text/plain", "utf-8", False).write(frames).decode() == "größe €\n\ncut �\nnext\n"
    assert Form("text/plain", "iso-8859-1", False).write(frames) == "größe ?\n\ncut ?\nnext\n".encode(
        "latin-1"
    )
    assert (
        Form("text/plain", "utf-16le", False).write(frames).decode("utf-16le") == "größe €\n\ncut �\nnext\n"
    )


@pytest.mark.parametrize("charset", ["utf-8", "us-ascii", "utf-16", "shift_jis"])
def test_json_is_an_array_of_texts(charset: str) -> None:
    frames, _ = render(['"ö"'.encode(), b"", b"\xff"])
    made = Form("text/json", charset, False)
    assert json.loads(made.write(frames).decode(charset)) == ['"ö"', "", "�"]
    assert made.content_type == f"text/json; charset={charset}"
    assert Form("application/json", "utf-8", False).content_type == "application/json"


def test_lines_are_a_json_string_each() -> None:
    frames, _ = render([b"two\nlines", b"", '"ö"'.encode()])
    assert (
        Form("application/x-ndjson", "utf-8", False).write(frames)
        == '"two\\nlines"\n""\n"\\"ö\\""\n'.encode()
    )


def test_every_charset_exists() -> None:
    for name in representations.CHARSETS:
        found = representations.codec_of(name.upper())
        assert found is not None
        assert "a\n".encode(found).decode(found) == "a\n"
