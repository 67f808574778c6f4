import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.websocket.frames import format_time, parse_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2018-11-26T14:22:59.817+01:00", 1_543_238_579_817),
        ("2018-11-26T14:22:59.8179999-00:30", 1_543_243_979_817),
        ("2018-11-26T14:22Z", 1_543_242_120_000),
        ("2018-11-26T14:22:59.8+01:00:30", 1_543_238_549_800),
    ],
)
def test_times_with_an_offset_are_read(text: str, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "2018-11-26",
        "2018-11-26T14:22:59",
        "2018-11-26 14:22:59Z",
        "2018-02-30T00:00:00Z",
        "２018-11-26T14:22Z",
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_time(text)


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert format_time(1_543_238_579_817) == "2018-11-26T13:22:59.817Z"
    assert format_time(0) == "1970-01-01T00:00:00.000Z"
    assert format_time(2**63 - 1) == "9999-12-31T23:59:59.999Z"
    assert format_time(-(2**63)) == "0001-01-01T00:00:00.000Z"


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_what_is_written_reads_as_it_was(ms: int) -> None:
    assert parse_time(format_time(ms)) == ms
