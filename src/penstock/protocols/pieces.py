"""Writing over TLS in pieces, so that what is not taken is seen.

uvloop encrypts a write at once and hands all of it to the socket below, whose buffer it does not count: after one
large write it would tell that nothing waits, and never let the writer pause. Of many small ones the first fill the
socket's buffer, and the rest wait where they are counted.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

PIECE_BYTES: Final = 64 * 1024


class Pieces:
    """A transport over TLS; everything but writing is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes, in pieces where they are many."""
        if len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._transport.write(view[start : start + PIECE_BYTES])

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Write several."""
        self.write(b"".join(pieces))
