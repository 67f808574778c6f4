"""Durations, sizes and times as people write them: 90s, 10m, 2h, 3d, 1w; 512K, 100M, 10G; 2026-01-31T08:00."""

import re
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from .typed import ParamType

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION: Final = re.compile(r"([0-9]{1,12})([smhdw]?)")
_SIZE: Final = re.compile(r"([0-9]{1,15})([KMGT]?)(?:i?B)?", re.IGNORECASE)


class DurationType(ParamType[int]):
    """Seconds: a number of them, or one with a unit; -1 means without end."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or value == "-1":
            return int(value)
        found = _DURATION.fullmatch(str(value).lower())
        if found is None:
            self.fail(f"{value!r} is no duration like 90s, 10m, 2h, 3d or 1w", param, ctx)
        return int(found[1]) * _SECONDS[found[2] or "s"]


class SizeType(ParamType[int]):
    """Bytes: a number of them, or one with a unit; -1 means without bound."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or value == "-1":
            return int(value)
        found = _SIZE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no size like 512K, 100M or 10G", param, ctx)
        return int(found[1]) * _BYTES[found[2].upper()]


DURATION: Final = DurationType()
SIZE: Final = SizeType()


def moment_ms(text: str) -> int | None:
    """A time in ms since the epoch: as ISO 8601, in UTC unless it says otherwise, or how long ago (2h); else None."""
    found = _DURATION.fullmatch(text.lower())
    if found is not None and found[2]:
        return max(0, int((time.time() - int(found[1]) * _SECONDS[found[2]]) * 1000))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)  # as times are shown
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None


class MomentType(ParamType[int]):
    """A time in ms since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        found = int(text) if text.isascii() and text.isdecimal() else moment_ms(text)
        if found is None:
            self.fail(
                f"{text!r} is no time like 2026-01-31T08:00, 2h (ago) or ms since the epoch", param, ctx
            )
        return found


MOMENT: Final = MomentType()


def position(text: str) -> Any:
    """A place of a log as the admin API takes it: earliest, latest, a message id, or LEDGER:ENTRY (at that message)."""
    found = re.fullmatch(r"(\d+):(\d+)(?::(-?\d+))?", text)
    if found is None:
        return text
    return {"ledgerId": int(found[1]), "entryId": int(found[2]), "partitionIndex": int(found[3] or -1)}
