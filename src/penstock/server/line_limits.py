"""Bounds the log lines that any client can cause: refused connections, heads and credentials.

Without a bound a stranger fills the disk with lines, at thousands a second. Of each kind (a logger and its text) the
first lines of a minute are written; of the others there is one line a minute with their number.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from penstock.protocols.audit import LogLimit

log = logging.getLogger(__name__)

LINES_PER_MINUTE: Final = 20  # of one kind
KINDS_MAX: Final = 200  # then the others are one kind together
TEXT_MAX: Final = 80

# What has lines for single connections. Audit lines have a bound of their own, in `protocols.audit`.
LOGGERS: Final = (
    "asyncio",
    "uvicorn.error",
    "penstock.protocols.binary.connection",
    "penstock.protocols.http.exchange",
    "penstock.protocols.websocket.socket",
)


class LineLimits(logging.Filter):
    """A filter of the loggers above."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._kinds: dict[tuple[str, str], LogLimit] = {}

    def attach(self) -> None:
        """Filter what the loggers say; harmless when repeated."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be written."""
        kind = record.name, str(record.msg).partition("\n")[0][:TEXT_MAX]
        limit = self._kinds.get(kind)
        if limit is None:
            if len(self._kinds) >= KINDS_MAX:
                kind = "", "other lines"
            limit = self._kinds.setdefault(kind, LogLimit(LINES_PER_MINUTE, self._now))
        return limit.admit()

    def tell(self) -> None:
        """Write how many lines were kept back, where their minute is over; to be called now and then."""
        for (name, text), limit in list(self._kinds.items()):
            count = limit.suppressed()
            if count:
                log.warning("lines kept back", extra={"of": name, "text": text, "count": count})
