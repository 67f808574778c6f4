"""GET and HEAD of a partition: byte ranges of its log (docs/kafka-rest.md; RFC 9110 13-15)."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind
from penstock.protocols.http.answers import Answer, RefusedError
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll, LongPolls
from penstock.protocols.limits import Limits

from .positions import LogPositions, TrimmedError
from .ranges import Piece, Range, find_pieces, parse_ranges
from .representations import Form, Headers, Renderer, negotiate

OPEN_BYTES: Final = (
    1024 * 1024
)  # of a range without an end, whose client reads on: a piece that is soon there
LASTING_S: Final = 3600  # no longer, as a topic may be deleted and created again

_ATTEMPTS: Final = 5  # at a log that is trimmed while it is read

_WAIT: Final = re.compile(r'wait\s*=\s*"?([0-9]{1,9})"?')
_WHOLE: Final = (Range(0, None),)


class Read:
    """Read requests."""

    def __init__(self, broker: Broker, limits: Limits, waits: LongPolls) -> None:
        self._clock = broker.clock
        self._limits = limits
        self._waits = waits
        self._renderer = Renderer()

    async def __call__(self, log: LogPositions, exchange: Exchange) -> Answer:
        """Answer GET, or HEAD, which the exchange sends without its body."""
        form = negotiate(exchange.headers)
        headers = {
            "accept-ranges": "bytes",
            "vary": "Accept, Accept-Charset, Accept-Encoding",
            "x-content-type-options": "nosniff",
        }
        ranges = parse_ranges(exchange.headers.get("range"))
        wait_ms = self._wait_ms(exchange, headers)
        for attempt in range(_ATTEMPTS):
            try:
                return await self._read(log, exchange, form, ranges, wait_ms, headers)
            except TrimmedError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def _wait_ms(self, exchange: Exchange, headers: Headers) -> int:
        seconds = wait_seconds(exchange.headers.get("prefer"))
        if seconds is None:
            return 0
        wait_ms = min(seconds * 1000, self._limits.max_wait_ms)
        headers["preference-applied"] = f"wait={wait_ms // 1000}"
        return wait_ms

    async def _read(
        self,
        log: LogPositions,
        exchange: Exchange,
        form: Form,
        ranges: Sequence[Range] | None,
        wait_ms: int,
        headers: Headers,
    ) -> Answer:
        size, pieces = await self._find(log, exchange, ranges or _WHOLE, wait_ms)
        if not pieces:
            nothing = {**headers, "content-range": f"bytes */{size}", "cache-control": "no-cache"}
            if ranges is None:
                return Answer(raw=b"", headers={**nothing, "content-type": form.content_type})
            raise RefusedError(
                ErrorKind.RANGE_NOT_SATISFIABLE,
                f"nothing begins in the range: the log ends at {size}",
                nothing,
            )
        made = await self._renderer(log, form, pieces, size)
        if ranges is not None and exchange.headers.get("if-range", made.etag) != made.etag:
            return await self._read(log, exchange, form, None, 0, headers)
        headers = {
            **headers,
            "etag": made.etag,
            "cache-control": _cache_control(pieces, ranges),
        }
        if _matches(exchange.headers.get("if-none-match"), made.etag):
            return Answer(status=304, headers=headers)
        body, content = await made.finish(form)
        return Answer(status=200 if ranges is None else 206, headers={**headers, **content}, raw=body)

    async def _find(
        self, log: LogPositions, exchange: Exchange, ranges: Sequence[Range], wait_ms: int
    ) -> tuple[int, list[Piece]]:
        """What there is of the ranges; the first bytes of them are waited for."""
        until = self._clock.monotonic_ms() + wait_ms
        while True:
            seen = log.topic.bounds.next_offset
            size = await log.extend()
            pieces = await find_pieces(
                log,
                size,
                ranges,
                bytes_max=self._limits.max_read_bytes,
                open_bytes_max=min(OPEN_BYTES, self._limits.max_read_bytes),
            )
            left = until - self._clock.monotonic_ms()
            if pieces or left <= 0:
                return size, pieces
            news = log.topic.grown(seen, self._limits.max_wait_ms)
            async with LongPoll(self._waits, exchange) as poll:
                if not await poll.until(news, left):
                    return size, pieces
            await asyncio.sleep(0)


def _cache_control(pieces: Sequence[Piece], ranges: Sequence[Range] | None) -> str:
    if ranges is not None and len(ranges) == len(pieces) and all(piece.lasting for piece in pieces):
        return f"private, max-age={LASTING_S}, immutable"
    return "private, no-cache"


def _matches(header: str | None, etag: str) -> bool:
    if header is None:
        return False
    return header.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in header.split(","))


def wait_seconds(prefer: str | None) -> int | None:
    """How long a client would wait (RFC 7240, `Prefer: wait=10`), None when it does not say so understandably."""
    for preference in (prefer or "").split(","):
        match = _WAIT.fullmatch(preference.split(";")[0].strip().lower())
        if match is not None:
            return int(match.group(1))
    return None
