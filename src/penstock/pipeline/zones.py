"""Names of time zones that Spark, Arrow and Python understand alike."""

import re
from typing import Final
from zoneinfo import ZoneInfo

TIME_ZONE: Final = "time zone like UTC, Europe/Berlin or +02:00"
UTC: Final = "UTC"
SESSION_ZONE: Final = "spark.sql.session.timeZone"

_OFFSET: Final = re.compile(r"[+-](0\d|1[0-7]):[0-5]\d")


def is_time_zone(name: str) -> bool:
    """Whether a zone has this name: of the tz database, or `+HH:MM`."""
    if name == UTC or _OFFSET.fullmatch(name):
        return True
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True
