"""Times as Pulsar's JSON and headers have them."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def iso_time(ms: int) -> str:
    """A time (ms since the epoch) in ISO 8601, UTC; beyond the year 9999 that year's end."""
    at = _EPOCH + timedelta(milliseconds=max(0, min(ms, _LATEST_MS)))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
