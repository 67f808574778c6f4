"""The shared state of the connections of one server: endpoints, current settings and limits, connections, and the date."""

import asyncio
from email.utils import formatdate
from typing import Any, Protocol

from penstock.protocols.limits import Limits
from penstock.protocols.load import Load

from .config import HttpSettings
from .deadlines import Deadlines
from .forwarded import TrustedProxies


class Connection(Protocol):
    """Of HTTP or of a WebSocket."""

    transport: asyncio.Transport

    @property
    def lingers(self) -> bool:
        """Whether it ends, and its peer may still read why."""
        ...

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that is late."""

    def shutdown(self) -> None:
        """The server stops: end, now or after the current answer."""


class State:
    """`app` has `serve` for exchanges, and is called for WebSockets as ASGI has it."""

    def __init__(self, app: Any, settings: HttpSettings, limits: Limits, load: Load) -> None:
        self.app = app
        self.load = load
        self.keep_alive_s = settings.keep_alive_s
        self.ping_s = settings.websocket_ping_s or None
        self.compression = settings.websocket_compression
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.apply_limits(limits)
        self.set_date()

    def apply_limits(self, limits: Limits) -> None:
        """Go by other limits from now on; the size of frames holds for WebSockets to come."""
        self.deadlines = Deadlines.of(limits)
        self.headers_max = limits.max_headers
        self.frame_bytes_max = limits.max_frame_bytes

    def set_date(self, date: str | None = None) -> None:
        """The headers of every answer, as they are and as lines: now's date, unless it is given."""
        said = (date or formatdate(usegmt=True)).encode("ascii")
        self.default_headers = [(b"date", said)]
        self.default_lines = b"date: %s\r\n" % said
