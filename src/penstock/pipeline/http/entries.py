"""Raw entries of a log, streamed.

On the standard library alone: it hands on a chunked body in half the time httpx needs, and the tasks of a query,
which do nothing else, need not import httpx at all.
"""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from penstock.client.access import Access, without_password
from penstock.client.http import TIMEOUT_S, refusal, unreachable
from penstock.client.paths import partition_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.wire.runs import ENTRIES, RUNS

_ERROR_BYTES_MAX: Final = 64 << 10


class Entries(NamedTuple):
    """An open stream of entries of a log that lies between the offsets `earliest` and `latest`; `ledger` is -1 where the log
    has many. In one that is not `dense`, offsets may be missing that belong to no message, such as a cluster's own markers."""

    ledger: int
    dense: bool
    earliest: int
    latest: int
    response: http.client.HTTPResponse

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises UNAVAILABLE when the connection breaks."""
        try:
            return self.response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"the connection broke: {error!r}") from error


@contextmanager
def entries(access: Access, topic: TopicName, partition: int, start: int, end: int) -> Iterator[Entries]:
    """Stream the raw entries that hold the offsets `start .. end-1`.

    Raises RemoteError if the server refuses, and UNAVAILABLE if it cannot be reached.
    """
    query = urlencode({"offset": start, "end_offset": end})
    path = f"{partition_path(topic, partition)}/messages?{query}"
    connection = connect(access, TIMEOUT_S)
    try:
        try:
            connection.request(
                "GET",
                urlsplit(access.url).path + path,
                headers={"Accept": f"{RUNS}, {ENTRIES}", **access.headers()},  # an older server has no runs
            )
            response = connection.getresponse()
            refused = response.read(_ERROR_BYTES_MAX) if response.status >= 400 else None
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(access.url, error) from error
        if refused is not None:
            raise refusal(response.status, refused)
        kind = response.headers.get("Content-Type", "")
        if kind.split(";")[0].strip() not in (RUNS, ENTRIES):
            raise PenstockError(
                ErrorKind.NOT_ACCEPTABLE,
                f"{without_password(access.url)} answers {kind!r} instead of {RUNS}",
            )
        ledger, earliest, latest = (
            int(response.headers.get(f"X-Penstock-{name}", "-1")) for name in ("Ledger", "Earliest", "Latest")
        )
        told = response.headers.get("X-Penstock-Dense")
        dense = ledger >= 0 if told is None else told == "true"
        yield Entries(ledger, dense, earliest, latest, response)
    finally:
        connection.close()


def connect(access: Access, timeout_s: float) -> http.client.HTTPConnection:
    """A connection of the standard library's, opened with the first request."""
    netloc, tls = urlsplit(access.url).netloc, access.tls()
    if tls is not None:
        return http.client.HTTPSConnection(netloc, timeout=timeout_s, context=tls)
    return http.client.HTTPConnection(netloc, timeout=timeout_s)
