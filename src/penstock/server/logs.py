"""Structured logs on stderr: one JSON object a line, or readable lines on a terminal.

By the standard library: a logging framework would take longer to import than all of the endpoints.

Lines that any client can cause (refused connections, heads and credentials) are bounded: without a bound a client
fills the disk with lines, at thousands a second. Of each kind (a logger and its text) the first lines of a minute are
written; of the others there is one line a minute with their number.
"""

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

import msgspec

from penstock.protocols.audit import LogLimit

from .config import LogSettings

log = logging.getLogger(__name__)

LINES_PER_MINUTE: Final = 20  # of one kind
KINDS_MAX: Final = 200  # then the others are one kind together
TEXT_MAX: Final = 80

# Loggers with lines for single connections. Audit lines have a separate bound, in `protocols.audit`.
LOGGERS: Final = (
    "asyncio",
    "penstock.protocols.binary.connection",
    "penstock.protocols.http.exchange",
    "penstock.protocols.websocket.socket",
    "penstock.server.sockets",
    "penstock.server.http1",
    "penstock.server.request",
)

# What every record has; anything beyond it was given as `extra` and is part of the event.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


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
        """Whether to write a line."""
        kind = record.name, str(record.msg).partition("\n")[0][:TEXT_MAX]
        limit = self._kinds.get(kind)
        if limit is None:
            if len(self._kinds) >= KINDS_MAX:
                kind = "", "other lines"
            limit = self._kinds.setdefault(kind, LogLimit(LINES_PER_MINUTE, self._now))
        return limit.admit()

    def tell(self) -> None:
        """Write the number of suppressed lines, if their minute is over; called at intervals."""
        for (name, text), limit in list(self._kinds.items()):
            count = limit.suppressed()
            if count:
                log.warning("lines kept back", extra={"of": name, "text": text, "count": count})


LINE_LIMITS: Final = LineLimits()  # of the process, as loggers are


def configure(settings: LogSettings) -> None:
    """Send every log, the libraries' too, to stderr."""
    readable = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter() if readable else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("penstock.audit").disabled = not settings.audit
    LINE_LIMITS.attach()


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "event", …}`, with the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(event, enc_hook=repr).decode()


class ConsoleFormatter(logging.Formatter):
    """`time level event key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}"
        line += "".join(f" {key}={value!r}" for key, value in _extra(record).items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}
