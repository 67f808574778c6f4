"""`Content-MD5`, which the proposal asks for (RFC 1864): a check of transmission, no defence."""

from base64 import b64encode
from binascii import Error, a2b_base64, unhexlify
from collections import OrderedDict
from hashlib import md5
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .representations import Form

DIGESTS_MAX: Final = 4096  # stretches whose digest is remembered, at about 200 bytes each

_HEX_DIGITS: Final = 32


def digest(body: bytes) -> bytes:
    return md5(body, usedforsecurity=False).digest()


def in_header(value: bytes) -> str:
    """A digest as RFC 1864 writes it."""
    return b64encode(value).decode()


def check(body: bytes, header: str | None) -> None:
    """Compare a body, as it was sent, with its `Content-MD5`: base64, or hex as in the proposal's example.

    Raises CHECKSUM, and BAD_PARAMETER for what is no digest.
    """
    if header is None:
        return
    text = header.strip()
    try:
        wanted = unhexlify(text) if len(text) == _HEX_DIGITS else a2b_base64(text, strict_mode=True)
    except (Error, ValueError):
        wanted = b""
    if len(wanted) != _HEX_DIGITS // 2:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"Content-MD5 {text[:80]!r} is no MD5 digest")
    if wanted != digest(body):
        raise PenstockError(ErrorKind.CHECKSUM, "the body does not have the digest that Content-MD5 tells")


class Digests:
    """Digests of stretches that were sent before: many readers follow the same log."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[int, int, int, Form], bytes] = OrderedDict()

    def get(self, ledger: int, start: int, end: int, form: Form) -> bytes | None:
        return self._held.get((ledger, start, end, form))

    def put(self, ledger: int, start: int, end: int, form: Form, value: bytes) -> None:
        self._held[ledger, start, end, form] = value
        while len(self._held) > DIGESTS_MAX:
            self._held.popitem(last=False)
