"""A connection without a server, for sockets in unit tests."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any


class FakeConnection:
    """Gives out what it was made with, a list for each read, and keeps what is sent."""

    def __init__(self, reads: Iterable[list[bytes]] = ()) -> None:
        self.heard = 0
        self.ended = False
        self.writable = asyncio.Event()
        self.writable.set()
        self.accepted = False
        self.refused: tuple[int, bytes] | None = None
        self.closed: tuple[int, str] | None = None
        self.writes: list[list[bytes]] = []
        self._reads = iter(reads)

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The frames of all writes."""
        return [json.loads(frame) for write in self.writes for frame in write]

    def accept(self) -> None:
        self.accepted = True

    def refuse(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.refused = status, body

    async def receive(self) -> list[bytes]:
        return next(self._reads, [])

    def send(self, payloads: Sequence[bytes]) -> None:
        self.writes.append(list(payloads))

    def close(self, code: int, reason: str) -> None:
        self.closed, self.ended = (code, reason), True
