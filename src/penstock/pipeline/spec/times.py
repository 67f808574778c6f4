"""Durations and times as people write them, and when a row is late: when no step has a use for it any more. Pure.

Spark drops late rows within its stateful operators, silently. What they compare with the watermark is the event
time itself, or, where rows are grouped by windows, the end of the window: a row of a window that is still open is
not late, however old it is.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from .spec import Spec, Step

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_DURATION: Final = re.compile(rf"(\d{{1,12}})\s*({'|'.join(_UNITS_MS)})s?", re.IGNORECASE)

_TEXT: Final = r"\s*,\s*'(?:interval\s+)?([^']+)'"
_WINDOW: Final = re.compile(
    rf"(?<![\w.])window\s*\([^()']*?{_TEXT}(?:{_TEXT})?(?:{_TEXT})?\s*\)", re.IGNORECASE
)
_GROUPS: Final = re.compile(r"\b(group\s+by|select\s+distinct|session_window)\b", re.IGNORECASE)
_JOIN: Final = re.compile(r"\bjoin\b", re.IGNORECASE)
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


class Window(msgspec.Struct, frozen=True):
    """Windows of `size` ms that begin every `slide` ms, `offset` ms after the epoch."""

    size: int
    slide: int
    offset: int = 0

    def end_us(self, event_us: int) -> int:
        """The end of the last window that holds a time, in microseconds."""
        slide = self.slide * 1000
        return event_us - (event_us - self.offset * 1000) % slide + self.size * 1000


def windows_of(spec: Spec, view: str) -> tuple[Window, ...]:
    """The windows that rows of `view` are grouped by; none where the event time itself decides."""
    streams = {*spec.sources}
    followers = {view}
    found: list[Window] = []
    position = next((n + 1 for n, step in enumerate(spec.steps) if step.name == view), 0)
    for number, step in enumerate(spec.steps):
        used = {name for name in followers | streams if mentions(step, name)}
        if used & (streams | followers):
            streams.add(step.name)
        if number < position or not used & followers:
            continue
        if step.python or step.stateful or step.deduplicate:
            return ()
        sql = _COMMENT.sub(" ", step.sql)
        if _JOIN.search(sql) and len(used) > 1:
            return ()
        windows = _windows(sql)
        if windows is None or (not windows and _GROUPS.search(sql)):
            return ()
        if windows:
            found += windows  # what comes behind a window has the watermark of its own
        else:
            followers.add(step.name)
    return tuple(found)


def late_us(windows: Iterable[Window], event_us: int) -> int:
    """The watermark, in microseconds, from which on a row is dropped somewhere."""
    return min((window.end_us(event_us) for window in windows), default=event_us)


def mentions(step: Step, name: str) -> bool:
    """Whether a step reads a view."""
    if step.sql:
        sql = _COMMENT.sub(" ", step.sql)
        return re.search(rf"(?<![\w.']){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None
    return name in step.inputs


def _windows(sql: str) -> list[Window] | None:
    """The windows of a query; None where one is not understood."""
    calls = len(re.findall(r"(?<![\w.])window\s*\(", sql, re.IGNORECASE))
    found: list[Window] = []
    for size, slide, offset in _WINDOW.findall(sql):
        try:
            found.append(
                Window(
                    duration_ms(size),
                    duration_ms(slide) if slide else duration_ms(size),
                    duration_ms(offset) if offset else 0,
                )
            )
        except ValueError:
            return None
    return found if len(found) == calls else None
