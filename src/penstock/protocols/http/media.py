"""Media types and preferences in headers: `type/subtype; name=value`, and lists with q-values (RFC 9110 12); and
`multipart/mixed` bodies (RFC 2046 5.1), whose lines end in CRLF, or in LF throughout as people type."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.model.errors import ErrorKind, PenstockError

_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TYPE: Final = re.compile(rf"\s*({_WORD}/{_WORD})\s*")
_PARAMETER: Final = re.compile(rf';\s*(?:({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^";,\s]*))\s*)?')
_WEIGHT: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_MEMBERS_MAX: Final = 100  # of one list; what follows is not looked at

PARTS_MAX: Final = 10_000
HEAD_BYTES_MAX: Final = 8 * 1024  # of one part, as much as servers take of a request

_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def parse_media_type(text: str) -> tuple[str, dict[str, str]] | None:
    """The type in lower case and its parameters, by lower-case name; None for an invalid media type."""
    match = _TYPE.match(text)
    if match is None:
        return None
    parameters: dict[str, str] = {}
    at = match.end()
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            return None
        name, quoted, plain = found.groups()
        if name is not None:
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            parameters.setdefault(name.lower(), value)
        at = found.end()
    return match.group(1).lower(), parameters


def weights(header: str) -> dict[str, float]:
    """What a list names, in lower case and without other parameters, with its q-value; a bad one counts as 1."""
    found: dict[str, float] = {}
    for member in header.split(",")[:_MEMBERS_MAX]:
        name, *parameters = (part.strip().lower() for part in member.split(";"))
        if not name:
            continue
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                value = parameter[2:].strip()
                weight = float(value) if _WEIGHT.fullmatch(value) else 1.0
                break
        found[name] = max(weight, found.get(name, 0.0))
    return found


def choose_type(accept: str | None, offered: Sequence[str]) -> str | None:
    """The best of the offered types, the earlier one of equals; None if none is acceptable."""
    if accept is None or not accept.strip():
        return offered[0]
    wanted = weights(accept)
    best, best_weight = None, 0.0
    for name in offered:
        main = name.split("/", 1)[0]
        weight = wanted.get(name, wanted.get(f"{main}/*", wanted.get("*/*", 0.0)))
        if weight > best_weight:
            best, best_weight = name, weight
    return best


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
