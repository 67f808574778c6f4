"""The Range header."""

import pytest

from penstock.protocols.kafka_rest.ranges import Range, parse_ranges


@pytest.mark.parametrize(
    ("header", "ranges"),
    [
        ("bytes=0-1023", [Range(0, 1023)]),
        ("bytes=5-", [Range(5, None)]),
        ("bytes=-7", [Range(None, 7)]),
        ("Bytes = 0-0 , -1,", [Range(0, 0), Range(None, 1)]),
        ("bytes=99999999999999999999999-", [Range(10**18, None)]),
    ],
)
def test_ranges(header: str, ranges: list[Range]) -> None:
    assert parse_ranges(header) == ranges


@pytest.mark.parametrize(
    "header",
    ["", "bytes", "bytes=", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=0-1,x", "items=0-1", "bytes=+1-2", "bytes=1",
     "bytes=" + ",".join(["0-1"] * 33), "bytes=1-2-3", "bytes=\u00b2-"],
)  # fmt: skip
def test_what_is_no_range_is_ignored(header: str) -> None:
    assert parse_ranges(header) is None
