"""Input of `produce` to messages."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from penstock.cli.messages import pieces as module
from penstock.cli.messages.formats import BadPiece, Reading
from penstock.cli.messages.pieces import Pieces, pieces


def made(reading: Reading, piece: bytes) -> Any:
    """The message of a piece, as a server sees it."""
    return msgspec.json.decode(msgspec.json.encode(reading.message(piece)))


def test_lines_are_texts_or_values_of_a_schema() -> None:
    shared = {"key": "k", "properties": {"a": "b"}}
    assert made(Reading("lines", "text", shared=shared), b'{"a": 1}') == {"value": '{"a": 1}', **shared}
    assert made(Reading("lines", "text", structured=True), b'{"a": 1}') == {"value": {"a": 1}}
    assert made(Reading("lines", "text"), b"") == {"value": ""}
    with pytest.raises(BadPiece, match="no JSON"):
        Reading("lines", "text", structured=True).message(b"{")


def test_bytes() -> None:
    with pytest.raises(BadPiece, match=r"not UTF-8 \(byte 3 is 0xff\)"):
        Reading("lines", "text").message(b"ab\xff")
    assert made(Reading("lines", "binary"), b"ab\xff") == {"value": b64encode(b"ab\xff").decode()}
    assert made(Reading("whole", "binary"), b"a\nb") == {"value": b64encode(b"a\nb").decode()}
    assert made(Reading("lines", "base64"), b" YWL/ ") == {"value": "YWL/"}


def test_keys_and_values() -> None:
    reading = Reading("key-value", "text", separator="::", shared={"key": "other"})
    assert made(reading, b"k::v::w") == {"key": "k", "value": "v::w"}
    assert made(reading, b"::v") == {"key": "", "value": "v"}
    with pytest.raises(BadPiece, match="no '::' between"):
        reading.message(b"k:v")
    with pytest.raises(BadPiece, match="the key is not UTF-8"):
        reading.message(b"\xff::v")
    pair = Reading("key-value", "text", structured=True, keys_structured=True)
    assert made(pair, b'{"id": 1}\t[2]') == {"key": {"id": 1}, "value": [2]}


READ = (
    b'{"messageId":"CAA=","partition":3,"offset":7,"key":"k","value":%s,"properties":{"p":"q"},"publishTime":5,'
    b'"eventTime":6,"sequenceId":0,"producerName":"x","schema_version":%s,"redeliveryCount":1}'
)


def test_what_read_prints() -> None:
    reading = Reading("json", "text", shared={"properties": {"a": "b"}})
    assert made(reading, READ % (b'{"n": 1.10}', b"4")) == {
        "key": "k",
        "value": {"n": 1.1},
        "properties": {"a": "b", "p": "q"},
        "eventTime": 6,
    }
    assert b"1.10" in msgspec.json.encode(reading.message(READ % (b'{"n": 1.10}', b"4")))  # digits stay
    without = made(reading, READ % (b'"AP8="', b"null"))  # no schema: `read` shows base64
    assert (without["value"], without["schema_type"]) == ("AP8=", "bytes")
    assert "schema_type" not in made(reading, READ % (b"null", b"null"))
    assert "schema_type" not in made(reading, b'{"value": "AP8=", "schema_version": null}')
    assert made(reading, b'{"value": null, "encoding": "base64"}')["encoding"] == "base64"
    assert reading.message(b" \t") is None
    of_bytes = {"value": "v", "key": "AP8=", "keyIsBase64": True}
    assert made(Reading("json", "text"), msgspec.json.encode(of_bytes)) == of_bytes
    keyless = made(Reading("json", "text", shared={"key": "k"}), b'{"value": "v", "keyIsBase64": true}')
    assert keyless == {"value": "v", "key": "k"}  # the key that all have is a text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'"text"', "Expected `object`"),
        (b'{"key": "k"}', "missing required field `value`"),
        (b'{"value": 1, "propertys": {}}', "unknown field `propertys`"),
        (b'{"value": "\xff"}', "not UTF-8"),
        (b'{"value": [1,}', "malformed"),
        (b'{"value": null, "error": "no such field"}', "could not be decoded"),
        (b'{"value": "{\\"a", "valueSize": 100}', "was cut"),
    ],
)
def test_lines_of_json_that_are_no_messages(line: bytes, why: str) -> None:
    with pytest.raises(BadPiece, match=why):
        Reading("json", "text").message(line)


def lines_of(found: list[Pieces]) -> list[tuple[str, bytes]]:
    return [(one.named(place), piece) for one in found for place, piece in enumerate(one.contents)]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lines_however_they_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "READ_BYTES", size)
    file = tmp_path / "a{b"
    file.write_bytes(b"one\r\n\ntwo\xff\nno end")
    found = lines_of(list(pieces(("first", "second"), (str(file),), whole=False)))
    assert found == [
        ("value 1", b"first"),
        ("value 2", b"second"),
        (f"line 1 of {file}", b"one"),
        (f"line 2 of {file}", b""),
        (f"line 3 of {file}", b"two\xff"),
        (f"line 4 of {file}", b"no end"),
    ]
    file.write_bytes(b"one\r\n\r\nno end\r")
    found = lines_of(list(pieces((), (str(file),), whole=False, bare=True)))
    assert [piece for _, piece in found] == [b"one\r", b"\r", b"no end\r"]
    file.write_bytes(b"")
    assert lines_of(list(pieces((), (str(file),), whole=False))) == []
    assert lines_of(list(pieces((), (str(file),), whole=True))) == [(str(file), b"")]


def test_bounds_of_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES_MAX", 10)
    monkeypatch.setattr(module, "READ_BYTES", 4)
    file = tmp_path / "long"
    file.write_bytes(b"a\n" + b"x" * 11)
    with pytest.raises(click.ClickException, match="line 2 of"):
        list(pieces((), (str(file),), whole=False))
    with pytest.raises(click.ClickException, match="more than"):
        list(pieces((), (str(file),), whole=True))
    with pytest.raises(click.ClickException, match="cannot be read"):
        list(pieces((), (str(tmp_path / "nowhere"),), whole=False))
