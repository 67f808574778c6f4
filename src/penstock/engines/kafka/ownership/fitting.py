"""Whether a stored cursor fits its log. One that does not begins at the earliest place at which no message is missed."""

import logging
from enum import StrEnum

from penstock.engines.subscription.offsets import OffsetSet

from .records import CursorKey
from .state import StoredCursor

log = logging.getLogger(__name__)


class Misfit(StrEnum):
    """Why a cursor does not fit. The values are metric labels."""

    RECREATED = "recreated"  # the topic of this name is another one
    BEYOND_END = "beyond_end"  # the log ends before the mark: it was truncated, or is a mirror's
    ACKS_BEYOND_END = "acks_beyond_end"  # the log ends before messages that were acknowledged one by one
    EXPIRED = "expired"  # the log begins after the mark: unacknowledged messages were deleted


def fitted(stored: StoredCursor, topic_id: str, begin: int, end: int) -> tuple[OffsetSet, Misfit | None]:
    """The cursor for a log with the offsets `begin` up to, not with, `end`, and why it is not the stored one."""
    if stored.topic_id != topic_id:
        return OffsetSet(begin), Misfit.RECREATED
    if stored.mark > end:
        return OffsetSet(begin), Misfit.BEYOND_END
    cursor = stored.offsets()
    last = max((last for _, last in cursor.ranges()), default=-1)
    if last >= end:  # other messages may have these offsets now, or will have them
        return OffsetSet(max(begin, stored.mark)), Misfit.ACKS_BEYOND_END
    if cursor.mark < begin:
        cursor.raise_mark(begin)
        return cursor, Misfit.EXPIRED
    return cursor, None


def log_misfit(key: CursorKey, misfit: Misfit, stored: int, begins_at: int) -> None:
    """Log that a cursor does not fit, with the marks that were stored and that count now."""
    extra = {
        "topic": key.topic,
        "partition": key.partition,
        "subscription": key.subscription,
        "why": misfit.value,
        "stored": stored,
        "begins_at": begins_at,
    }
    log.warning("a cursor does not fit its log", extra=extra)
