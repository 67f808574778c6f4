"""Content-MD5."""

import hashlib
from base64 import b64encode

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.kafka_rest.bodies import check_digest

MD5 = hashlib.md5(b"abc").digest()


@pytest.mark.parametrize(
    "header", [None, b64encode(MD5).decode(), MD5.hex(), MD5.hex().upper(), f" {MD5.hex()} "]
)
def test_the_right_digest_passes(header: str | None) -> None:
    check_digest(b"abc", header)


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("d3b07384d113edec49eaa6238ad5ff00", ErrorKind.CHECKSUM),
        (b64encode(bytes(16)).decode(), ErrorKind.CHECKSUM),
        ("", ErrorKind.BAD_PARAMETER),
        ("!", ErrorKind.BAD_PARAMETER),
        (b64encode(bytes(15)).decode(), ErrorKind.BAD_PARAMETER),
        ("z" * 32, ErrorKind.BAD_PARAMETER),
        ("é" * 16, ErrorKind.BAD_PARAMETER),
    ],
)
def test_a_wrong_one_does_not(header: str, kind: ErrorKind) -> None:
    with pytest.raises(PenstockError) as caught:
        check_digest(b"abc", header)
    assert caught.value.kind is kind
