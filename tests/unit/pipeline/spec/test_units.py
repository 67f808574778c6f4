from datetime import UTC, datetime

import pytest

from penstock.pipeline.spec.times import duration_ms, time_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1 second", 1000), ("200 milliseconds", 200), ("10 Minutes", 600_000), ("2days", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "1", "second", "-1 second", "1 month", "1.5 hours"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration like '10 minutes'"):
        duration_ms(text)


@pytest.mark.parametrize(
    "given",
    [
        "2026-01-31T08:00:00Z",
        "2026-01-31T09:00:00+01:00",
        "2026-01-31 08:00:00",
        "1769846400000",
        1769846400000,
        datetime(2026, 1, 31, 8, tzinfo=UTC),
    ],
)
def test_times_are_in_utc_unless_they_say_otherwise(given: str | int | datetime) -> None:
    assert time_ms(given) == 1769846400000
