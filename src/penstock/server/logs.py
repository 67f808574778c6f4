"""Structured logs on stderr: one JSON object a line, or readable lines on a terminal.

By the standard library: a logging framework would take longer to import than all of the endpoints.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from .config import LogSettings
from .line_limits import LineLimits

# What every record has; anything beyond it was given as `extra` and is part of the event.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

LINE_LIMITS: Final = LineLimits()  # of the process, as loggers are

_REFUSED: Final = "ASGI callable returned without completing handshake."


def configure(settings: LogSettings) -> None:
    """Send every log, the libraries' too, to stderr."""
    readable = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ConsoleFormatter() if readable else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    # The HTTP server's own news are ours already, and it has one line for every WebSocket.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(is_news)
    logging.getLogger("penstock.audit").disabled = not settings.audit
    LINE_LIMITS.attach()


def is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes an upgrade that was refused with an answer of its own for an application that failed."""
    return record.msg != _REFUSED


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "logger", "event", …}`, with what was given as `extra`."""

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
