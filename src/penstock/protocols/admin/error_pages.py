"""The reason and the kind of a Pulsar cluster's error answers that are HTML pages of its web server, or empty."""

import html
import re
from http import HTTPStatus
from typing import Final

from penstock.model.errors import ErrorKind

_PAGE_BYTES_MAX: Final = 64 * 1024  # of a page that are searched
_REASON_MAX: Final = 500  # characters
# Jetty's pages: a table with a row for the message, and the same in the title after the status. Any page may come: `*+` tries
# nothing twice, which would take minutes in a long one.
_MESSAGE: Final = re.compile(r"<th>\s*MESSAGE:\s*</th>\s*<td>([^<]*)</td>", re.IGNORECASE)
_TITLE: Final = re.compile(r"<title>\s*+(?:Error\s+\d{3}\s*+)?+([^<]*+)</title>", re.IGNORECASE)
_PRE: Final = re.compile(r"<pre>\s*+(?:reason:\s*+)?+([^<]*+)</pre>", re.IGNORECASE)
_TAG: Final = re.compile(r"<[^<>]*>")
_KINDS: Final = {
    401: ErrorKind.UNAUTHENTICATED,
    403: ErrorKind.FORBIDDEN,
    404: ErrorKind.NOT_FOUND,
    405: ErrorKind.METHOD_NOT_ALLOWED,
    406: ErrorKind.NOT_ACCEPTABLE,
    408: ErrorKind.SLOW_REQUEST,
    409: ErrorKind.ALREADY_EXISTS,
    413: ErrorKind.TOO_LARGE,
    415: ErrorKind.BAD_MEDIA_TYPE,
    429: ErrorKind.TOO_MANY_REQUESTS,
    431: ErrorKind.HEAD_TOO_LARGE,
    501: ErrorKind.NOT_SUPPORTED,
    502: ErrorKind.UNAVAILABLE,
    503: ErrorKind.UNAVAILABLE,
    504: ErrorKind.REQUEST_TIMEOUT,
}


def kind_of(status: int) -> ErrorKind:
    """The kind of an error answer, by its status alone."""
    return _KINDS.get(status, ErrorKind.BAD_PARAMETER if status < 500 else ErrorKind.INTERNAL)


def reason_in(status: int, body: bytes) -> str:
    """The reason in a page, on one line; the status' phrase if it has none."""
    page = body[:_PAGE_BYTES_MAX].decode("utf-8", "replace")
    found = ""
    for pattern in (_MESSAGE, _TITLE, _PRE):
        match = pattern.search(page)
        if match is not None and match[1].strip():
            found = match[1]
            break
    else:
        found = _TAG.sub(" ", page)
    reason = " ".join(html.unescape(found).split())[:_REASON_MAX]
    return f"the cluster answers: {reason or _phrase(status)}"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status}"
