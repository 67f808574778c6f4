"""`multipart/mixed` bodies taken apart (RFC 2046 5.1). Lines end in CRLF, or in LF throughout as people type."""

import re
from typing import Final, NamedTuple

from penstock.model.errors import ErrorKind, PenstockError

PARTS_MAX: Final = 10_000
HEAD_BYTES_MAX: Final = 8 * 1024  # of one part, as much as servers take of a request

_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Part(NamedTuple):
    """One part: its headers by lower-case name, and its bytes."""

    headers: dict[str, str]
    body: bytes


def parse_multipart(body: bytes, boundary: str) -> list[Part]:
    """The parts between preamble and epilogue, at least one. Raises BAD_MESSAGE, TOO_LARGE."""
    if not _BOUNDARY.fullmatch(boundary):
        raise _broken("it names no usable boundary")
    mark = b"--" + re.escape(boundary.encode())
    first = re.search(rb"(?:\A|\n)" + mark + rb"[ \t]*(\r?\n)", body)
    if first is None:
        raise _broken("its first boundary is missing")
    newline = first.group(1)
    delimiter = re.compile(newline + mark + rb"(--)?[ \t]*(?=" + newline + rb"|\Z)")
    parts: list[Part] = []
    at = first.start(1)
    while True:
        found = delimiter.search(body, at)
        if found is None:
            raise _broken("its last boundary is missing")
        if len(parts) >= PARTS_MAX:
            raise PenstockError(ErrorKind.TOO_LARGE, f"more than {PARTS_MAX} parts")
        parts.append(_part(body, at, found.start(), newline, len(parts)))
        if found.group(1):
            return parts
        at = found.end()


def _part(body: bytes, at: int, end: int, newline: bytes, number: int) -> Part:
    """The part whose head begins with the newline at `at`."""
    blank = body.find(newline * 2, at, end)
    stop = end if blank < 0 else blank
    if stop - at > HEAD_BYTES_MAX:
        raise PenstockError(ErrorKind.TOO_LARGE, f"the head of part {number + 1} is too large")
    headers: dict[str, str] = {}
    for line in body[at:stop].split(newline):
        if not line:
            continue
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.fullmatch(name):
            raise _broken(f"part {number + 1} has a header that cannot be read")
        headers[name.decode().lower()] = value.decode("latin-1").strip()
    return Part(headers, b"" if blank < 0 else body[blank + 2 * len(newline) : end])


def _broken(why: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_MESSAGE, f"the multipart body is broken: {why}")
