"""Heads of requests: the scope of a head, and repeated heads.

A client that keeps its connection sends the same head with nearly every request; only the length of the body differs.
Such a head is compared, not parsed. What may differ is the digits of Content-Length, and nothing else.
"""

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote

import httptools

from penstock.protocols.http.answers import Header
from penstock.protocols.http.exchange import Named

TARGETS_MAX: Final = 1024  # of requests, that are remembered taken apart
TARGET_BYTES_MAX: Final = 256
HEADS_MAX: Final = 2  # that a connection remembers: a consumer fetches and acknowledges in turns
HEAD_BYTES_MAX: Final = 2048  # of each
MISSES_MAX: Final = 16  # in a row, before a connection stops to remember

_LENGTH_DIGITS_MAX: Final = 9
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


class _Targets(dict[bytes, tuple[str, bytes, bytes]]):
    """What a request line asks for: its path, the path as it was sent, the query."""

    def __missing__(self, url: bytes) -> tuple[str, bytes, bytes]:
        parsed = httptools.parse_url(url)
        raw = parsed.path
        path = raw.decode("ascii")
        found = unquote(path) if "%" in path else path, raw, parsed.query or b""
        if len(url) <= TARGET_BYTES_MAX and not found[2]:  # a query may hold a token
            if len(self) >= TARGETS_MAX:
                self.clear()
            self[url] = found
        return found


TARGETS: Final = _Targets()


class Head:
    """A received head, to recognize it when repeated. `sent` ends at the body."""

    __slots__ = ("_digits", "_place", "length", "named", "scope", "sent")

    def __init__(self, sent: bytes, scope: dict[str, Any], named: Named) -> None:
        self.sent = sent
        self.scope = scope
        self.named = named
        self.length = max(0, named.length)
        self._digits, self._place = (0, 0), -1  # of Content-Length: in `sent`, and among the headers
        found = _LENGTH.search(sent)
        if found is not None:
            self._digits = found.span(1)
            self._place = [name for name, _ in scope["headers"]].index(b"content-length")

    def of(self, data: bytes) -> "Head | None":
        """The head of `data`, if that is a whole request with this head; None: it has to be parsed."""
        if data.startswith(self.sent):
            return self if len(data) == len(self.sent) + self.length else None
        start, end = self._digits
        if not end or not data.startswith(self.sent[:start]):
            return None
        until = data.find(b"\r", start, start + _LENGTH_DIGITS_MAX + 1)
        digits, after = data[start:until], self.sent[end:]
        if until < 0 or not digits.isdigit() or not data.startswith(after, until):
            return None
        if len(data) != until + len(after) + int(digits):
            return None
        headers = list(self.scope["headers"])
        headers[self._place] = b"content-length", digits
        sent = data[: until + len(after)]
        return Head(sent, {**self.scope, "headers": headers}, self.named._replace(length=int(digits)))


class Heads:
    """The last heads of a connection."""

    __slots__ = ("_last", "_misses")

    def __init__(self) -> None:
        self._last: list[Head] = []
        self._misses = 0

    def find(self, data: bytes) -> Head | None:
        """The head of `data`, if that is a whole request with a remembered head."""
        for place, known in enumerate(self._last):
            head = known.of(data)
            if head is not None:
                self._last[place] = head
                self._misses = 0
                return head
        return None

    def remember(self, data: bytes, body_bytes: int, scope: dict[str, Any], named: Named) -> None:
        """Remember the head of a request that was `data` as a whole and was parsed, if it is simple enough.

        `scope` is kept: it must be a copy.
        """
        size = len(data) - body_bytes
        if self._misses >= MISSES_MAX or size > HEAD_BYTES_MAX:
            return
        self._misses += 1
        sent = data[:size]
        if not sent.endswith(_END) or sent.find(_END) + len(_END) != size:
            return  # a body in chunks, or an empty line before the head
        if max(0, named.length) != body_bytes or len(_LENGTH.findall(sent)) != (named.length >= 0):
            return
        if any(name in (b"transfer-encoding", b"expect", b"upgrade") for name, _ in scope["headers"]):
            return
        if len(self._last) >= HEADS_MAX:
            del self._last[0]
        self._last.append(Head(sent, scope, named))


def announces_body(headers: Iterable[Header]) -> bool:
    """Whether a body follows a head."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t"))
        for name, value in headers
    )


def head_bytes(method: bytes, url: bytes, headers: Iterable[Header]) -> int:
    """The size of a head."""
    line = len(method) + len(url) + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(": \r\n") for name, value in headers) + 2
