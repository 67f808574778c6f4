"""`Range: bytes=…` over a log (RFC 9110 14; docs/kafka-rest.md): which whole messages a range asks for.

A range means the messages that begin in it, and at least one: the first that begins at or after its start.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .positions import LogPositions

RANGES_MAX: Final = 32  # a header with more is passed over, as RFC 9110 14.2 allows

_RANGE: Final = re.compile(r"([0-9]*)[ \t]*-[ \t]*([0-9]*)")
_DIGITS_MAX: Final = 18
_BEYOND: Final = 10**_DIGITS_MAX  # no log is that long


class Range(NamedTuple):
    """Both ends inclusive. Without `first`: the last `last` bytes; without `last`: to the end."""

    first: int | None
    last: int | None


class Piece(NamedTuple):
    """Whole messages, from one position to before another. `lasting`: the same range will always give them."""

    start: int
    end: int
    lasting: bool


def parse_ranges(header: str | None) -> list[Range] | None:
    """The requested ranges; None without any, and for anything but byte ranges, which RFC 9110 says to ignore."""
    if header is None:
        return None
    unit, separator, specs = header.partition("=")
    if not separator or unit.strip().lower() != "bytes":
        return None
    found: list[Range] = []
    for spec in specs.split(","):
        if not spec.strip():
            continue
        match = _RANGE.fullmatch(spec.strip())
        if match is None:
            return None
        first, last = (_number(digits) for digits in match.groups())
        if first is None and last is None:
            return None
        if first is not None and last is not None and last < first:
            return None
        found.append(Range(first, last))
    return found if 0 < len(found) <= RANGES_MAX else None


def _number(digits: str) -> int | None:
    if not digits:
        return None
    return int(digits) if len(digits) <= _DIGITS_MAX else _BEYOND


async def find_pieces(
    log: LogPositions, size: int, ranges: Sequence[Range], *, bytes_max: int, open_bytes_max: int
) -> list[Piece]:
    """What the ranges come to, without those that are past the end and those given twice.

    Together they are of about `bytes_max`, and each with an open end of about `open_bytes_max`; at least one
    message comes.
    """
    found: dict[tuple[int, int], Piece] = {}
    left = bytes_max
    for one in ranges:
        start = await _start(log, size, one)
        if start is None:
            continue
        is_open = one.first is None or one.last is None
        limit = start + min(left, open_bytes_max if is_open else left)
        if one.first is not None and one.last is not None:
            limit = min(limit, one.last + 1)
        end = min(await log.boundary(limit), size)
        if end <= start:
            end = await log.boundary(start + 1)
        lasting = limit <= size and one.first is not None and one.first >= log.first
        found.setdefault((start, end), Piece(start, end, lasting))
        left -= end - start
        if left <= 0:
            break
    return list(found.values())


async def _start(log: LogPositions, size: int, one: Range) -> int | None:
    if size == log.first:
        return None
    if one.first is None:
        if not one.last:
            return None
        start = await log.boundary(size - min(size, one.last))
        return start if start < size else await log.before(size)
    start = await log.boundary(one.first)
    return start if start < size else None
