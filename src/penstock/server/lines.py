"""The lines of an answer's head."""

import re
from http import HTTPStatus
from typing import Final

from penstock.protocols.http.answers import Header

LINES_MAX: Final = 1024  # headers of answers that are remembered as lines
LINE_BYTES_MAX: Final = 256

_BAD_NAME: Final = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\\[\]={} \t\\"]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def _status_line(status: int) -> bytes:
    known = status in {one.value for one in HTTPStatus}
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode() if known else b"")


STATUS_LINES: Final = {status: _status_line(status) for status in range(100, 600)}


class _Lines(dict[Header, bytes]):
    """The lines of headers, checked: a line feed in a value cannot begin another header."""

    def __missing__(self, header: Header) -> bytes:
        name, value = header
        if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
            raise RuntimeError(f"a header that HTTP does not allow: {name!r}")
        line = name.lower() + b": " + value + b"\r\n"
        if len(line) <= LINE_BYTES_MAX:
            if len(self) >= LINES_MAX:
                self.clear()
            self[header] = line
        return line


HEADER_LINES: Final = _Lines()
