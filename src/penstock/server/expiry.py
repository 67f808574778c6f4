"""Whether the certificates of a configuration count now, and for how long; for a check before a start.

A server starts with a certificate that has expired, and none of its clients connects.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from penstock.protocols.auth.certificates import Validity, validities

from .config import StartError

SOON: Final = timedelta(days=14)
LAST_PART: Final = 4  # of a short life: certificates of a week are renewed when half of it is over


class Doubt(str):
    """A sentence about what works now, and may not for long."""


def own(setting: str, file: str, beside: str = "") -> Iterator[str]:
    """What there is to say of a certificate that is shown to others: of the first in the file, and those between it and
    its root. Raises StartError if it does not count now."""
    now, found = datetime.now(UTC), _read(file)
    if not found:
        yield _unread(setting, file)
        return
    shown, *between = found
    if _is_wrong(shown, now):
        raise StartError(_said(setting, file, shown, now))
    yield f"{setting}: {file}{beside}, valid until {_shown(shown.ends)}"
    yield from _doubts(setting, file, [shown], now)
    yield from _doubts(setting, file, between, now)


def trusted(setting: str, file: str) -> Iterator[str]:
    """Warnings about trusted certificates. Raises StartError if none counts now."""
    now, found = datetime.now(UTC), _read(file)
    if not found:
        yield _unread(setting, file)
        return
    valid = [each for each in found if not _is_wrong(each, now)]
    if not valid:
        others = ", and no other of the file is valid" if len(found) > 1 else ""
        raise StartError(_said(setting, file, max(found, key=lambda each: each.ends), now) + others)
    yield f"{setting}: {file}, valid until {_shown(max(each.ends for each in valid))}"
    yield from _doubts(setting, file, found, now)


def _read(file: str) -> list[Validity]:
    """Those of a file; none if their kind is not supported here."""
    try:
        return validities(Path(file).read_bytes())
    except ValueError:
        return []


def _unread(setting: str, file: str) -> Doubt:
    return Doubt(f"{setting}: {file}: it could not be read until when it is valid")


def _doubts(setting: str, file: str, found: Sequence[Validity], now: datetime) -> Iterator[Doubt]:
    """A sentence for those that do not count, and one for those that will not for long."""
    wrong = [each for each in found if _is_wrong(each, now)]
    soon = [each for each in found if not _is_wrong(each, now) and _ends_soon(each, now)]
    for group in (wrong, soon):
        if group:
            more = f"; so it is with {len(group) - 1} more of the file" if len(group) > 1 else ""
            yield Doubt(_said(setting, file, group[0], now) + more)


def _is_wrong(one: Validity, now: datetime) -> bool:
    return not one.begins <= now <= one.ends


def _ends_soon(one: Validity, now: datetime) -> bool:
    return one.ends - now < min(SOON, (one.ends - one.begins) / LAST_PART)


def _said(setting: str, file: str, one: Validity, now: datetime) -> str:
    """When one of them begins or ends to count."""
    which = f"{setting}: the certificate of {one.owner} in {file}"
    if now < one.begins:
        return f"{which} is not valid before {_shown(one.begins)}"
    if now > one.ends:
        return f"{which} expired at {_shown(one.ends)}"
    left = one.ends - now
    count, unit = (left.days, "days") if left.days > 1 else (left // timedelta(hours=1), "hours")
    return f"{which} expires at {_shown(one.ends)}, in {count} {unit}"


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
