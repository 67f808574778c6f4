"""Durations and times as people write them, and which views a step reads. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

from .spec import Step

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION: Final = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)

_COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def duration_ms(text: str) -> int:
    """`10 minutes`, in ms. Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration like '10 minutes' (units: {', '.join(_UNITS_MS)})")
    return int(found[1]) * _UNITS_MS[found[2].lower()]


def time_ms(given: str | int | datetime) -> int:
    """A time in ms since the epoch: that number, or ISO 8601, in UTC unless it says otherwise. Raises ValueError."""
    if isinstance(given, str):
        text = given.strip()
        if text.isascii() and text.isdigit():
            return int(text)
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time like 2026-01-31T08:00:00Z") from None
    if isinstance(given, int):
        return given
    if given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    return round(given.timestamp() * 1000)


def mentions(step: Step, name: str) -> bool:
    """Whether a step reads a view."""
    if step.sql:
        sql = _COMMENT.sub(" ", step.sql)
        return re.search(rf"(?<![\w.']){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None
    return name in step.inputs
