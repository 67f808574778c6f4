"""Times on the wire: ISO 8601 with an offset, given out in UTC with milliseconds."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

# Java's ISO_OFFSET_DATE_TIME, which Pulsar reads event times by: an offset is required, seconds are not.
_OFFSET_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d(:\d\d)?)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999: readers of ISO 8601 know no more


def parse_time(text: str) -> int:
    """Milliseconds since the epoch; raises ValueError."""
    if not _OFFSET_DATE_TIME.fullmatch(text):
        raise ValueError(f"Text '{text[:80]}' could not be parsed as a date and time with an offset")
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=64)  # messages of one entry share their time, and neighbours mostly do
def format_time(ms: int) -> str:
    """`2018-11-26T14:22:59.817Z`. Times beyond the years 1 to 9999 are given as the nearest there is."""
    seconds, rest = divmod(max(-62_135_596_800_000, min(ms, _MS_MAX)), 1000)
    return f"{(_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()}.{rest:03}Z"
