"""Dates and times as ISO 8601 text and as counts of ticks since the epoch or since midnight.

Out: ISO text with as many digits as the unit has, timestamps with `Z`; what lies outside the years 1 to 9999
is given as the number itself, so that nothing stored is unreadable. In: text of any precision (what is finer
than the unit is cut off) or the number; a timestamp without a zone is UTC.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

MILLIS: Final = 1_000
MICROS: Final = 1_000_000
NANOS: Final = 1_000_000_000

_DAY_S: Final = 86_400
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_DAY_MIN: Final = date.min.toordinal() - _EPOCH_ORDINAL
_DAY_MAX: Final = date.max.toordinal() - _EPOCH_ORDINAL
_DIGITS: Final = {MILLIS: 3, MICROS: 6, NANOS: 9}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - naive, to count what has no zone either

_TIMESPECS: Final = {MILLIS: "milliseconds", MICROS: "microseconds"}
_SECOND_MIN: Final = _DAY_MIN * _DAY_S
_SECOND_END: Final = (_DAY_MAX + 1) * _DAY_S

# What most timestamps look like: left to the standard library, which alone would take more than ISO's
# extended form, and hours of 24.
_USUAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(\d{3})?)?Z", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?", re.ASCII)
_ZONE = re.compile(r"(?:[zZ]|([+-])(\d\d):?(\d\d))?", re.ASCII)


def date_text(days: int) -> str | int:
    """`2020-01-31` for days since the epoch."""
    if _DAY_MIN <= days <= _DAY_MAX:
        return date.fromordinal(days + _EPOCH_ORDINAL).isoformat()
    return days


def time_text(ticks: int, per_second: int, *, short: bool = False) -> str | int:
    """`12:34:56.789` for ticks since midnight; `short` drops groups of three zeros, as Java prints."""
    if not 0 <= ticks < _DAY_S * per_second:
        return ticks
    seconds, fraction = divmod(ticks, per_second)
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    digits = f"{fraction:0{_DIGITS[per_second]}}"
    if short:
        while digits.endswith("000"):
            digits = digits[:-3]
    return f"{text}.{digits}" if digits else text


def timestamp_text(ticks: int, per_second: int, zone: str = "Z", *, short: bool = False) -> str | int:
    """`2020-01-31T12:34:56.789Z` for ticks since the epoch."""
    spec = _TIMESPECS.get(per_second)
    if spec is not None and not short and _SECOND_MIN * per_second <= ticks < _SECOND_END * per_second:
        # The same text, by the standard library's C.
        moment = _EPOCH + timedelta(microseconds=ticks * MICROS // per_second)
        return moment.isoformat(timespec=spec) + zone
    days, rest = divmod(ticks, _DAY_S * per_second)
    if _DAY_MIN <= days <= _DAY_MAX:
        return f"{date_text(days)}T{time_text(rest, per_second, short=short)}{zone}"
    return ticks


def parse_date(text: str) -> int:
    """Days since the epoch; raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("no date")
    return date(*map(int, match.groups())).toordinal() - _EPOCH_ORDINAL


def parse_time(text: str, per_second: int) -> int:
    """Ticks since midnight; raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("no time")
    return _ticks(match, per_second)


def parse_timestamp(text: str, per_second: int, *, local: bool = False) -> int:
    """Ticks since the epoch; `local` refuses a zone. Raises ValueError."""
    if text[-1:] == "Z" and not local and _USUAL.fullmatch(text):
        return from_datetime(datetime.fromisoformat(text), per_second)
    day, clock = _DATE.match(text), None
    if day is not None and text[10:11] in ("T", "t", " "):
        clock = _TIME.match(text, 11)
    if day is None or clock is None:
        raise ValueError("no timestamp")
    zone = _ZONE.fullmatch(text, clock.end())
    if zone is None or (local and zone.group()):
        raise ValueError("no timestamp")
    ticks = parse_date(day.group()) * _DAY_S * per_second + _ticks(clock, per_second)
    if zone.group(1):
        hours, minutes = int(zone.group(2)), int(zone.group(3))
        if hours > 18 or minutes > 59:  # the widest offset ISO 8601 libraries take
            raise ValueError("no zone")
        shift = (hours * 60 + minutes) * 60 * per_second
        ticks += shift if zone.group(1) == "-" else -shift
    return ticks


def _ticks(match: re.Match[str], per_second: int) -> int:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no time of day")
    fraction = int((match[4] or "").ljust(9, "0")) * per_second // NANOS
    return (hour * 3600 + minute * 60 + second) * per_second + fraction


def to_date(days: int) -> date:
    """Raises OverflowError or ValueError outside the years 1 to 9999."""
    return date.fromordinal(days + _EPOCH_ORDINAL)


def to_time(ticks: int, per_second: int) -> time:
    """Nanoseconds are cut to microseconds."""
    micros = ticks * MICROS // per_second
    if not 0 <= micros < _DAY_S * MICROS:
        raise ValueError("no time of day")
    return (_EPOCH + timedelta(microseconds=micros)).time()


def to_datetime(ticks: int, per_second: int, *, local: bool = False) -> datetime:
    """Aware and in UTC unless `local`; nanoseconds are cut to microseconds."""
    moment = _EPOCH + timedelta(microseconds=ticks * MICROS // per_second)
    return moment if local else moment.replace(tzinfo=UTC)


def from_date(value: date) -> int:
    """Days since the epoch."""
    return value.toordinal() - _EPOCH_ORDINAL


def from_time(value: time, per_second: int) -> int:
    """Ticks since midnight."""
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return seconds * per_second + value.microsecond * per_second // MICROS


def from_datetime(value: datetime, per_second: int) -> int:
    """Ticks since the epoch; a naive datetime is taken unchanged (UTC, or local time)."""
    offset = value.utcoffset()
    delta = value.replace(tzinfo=None) - _EPOCH
    if offset is not None:
        delta -= offset
    micros = (delta.days * _DAY_S + delta.seconds) * MICROS + delta.microseconds
    return micros * per_second // MICROS
