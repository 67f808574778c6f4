"""Dates and times as text and as counts."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec import temporal
from penstock.codec.temporal import MICROS, MILLIS, NANOS


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([MILLIS, MICROS, NANOS]))
def test_timestamps_come_back(ticks: int, unit: int) -> None:
    text = temporal.timestamp_text(ticks, unit)
    assert ticks == (temporal.parse_timestamp(text, unit) if isinstance(text, str) else text)


@given(st.integers(-(10**6), 86_400 * NANOS), st.sampled_from([MILLIS, MICROS, NANOS]), st.booleans())
def test_times_come_back(ticks: int, unit: int, short: bool) -> None:
    text = temporal.time_text(ticks, unit, short=short)
    assert ticks == (temporal.parse_time(text, unit) if isinstance(text, str) else text)


@given(st.integers(-(10**7), 10**7))
def test_dates_come_back(days: int) -> None:
    text = temporal.date_text(days)
    assert days == (temporal.parse_date(text) if isinstance(text, str) else text)


@given(st.datetimes(timezones=st.timezones()))
def test_as_python_counts(moment: datetime) -> None:
    ticks = temporal.from_datetime(moment, MICROS)
    expected = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert ticks == (expected.days * 86_400 + expected.seconds) * MICROS + expected.microseconds
    if moment.utcoffset() is not None and moment.utcoffset().microseconds == 0:  # type: ignore[union-attr]
        text = moment.isoformat()
        if moment.utcoffset().seconds % 60 == 0:  # type: ignore[union-attr]
            assert temporal.parse_timestamp(text, MICROS) == ticks


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020",
        "2020-01-01",
        "2020-01-01T",
        "2020-01-01T25:00:00Z",
        "2020-01-01T00:60:00Z",
        "2020-01-01T00:00:60Z",
        "2020-13-01T00:00:00Z",
        "2020-01-01T00:00:00X",
        "2020-01-01T00:00:00Z ",
        "2020-01-01T00:00:00.Z",
        "2020-01-01T00:00:00+99:00",
        "2020-01-01X00:00:00Z",
        "٢٠٢٠-01-01T00:00:00Z",
    ],
)
def test_no_timestamps(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is for nobody
        temporal.parse_timestamp(text, MILLIS)


def test_what_is_finer_is_cut_off() -> None:
    assert temporal.parse_timestamp("1970-01-01T00:00:00.0019999Z", MILLIS) == 1
    assert temporal.parse_time("00:00:00.999999999", MILLIS) == 999
