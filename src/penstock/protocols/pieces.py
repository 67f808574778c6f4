"""Writing in pieces, so that what is not taken is seen, and is not more than what is known of.

A large answer over HTTP is handed to the connection piece by piece, as fast as the client takes it; until then it
is one object, which counts. Over TLS uvloop encrypts a write at once and hands all of it to the socket below, whose buffer it does not count: after one
large write it would tell that nothing waits, and never let the writer pause. Of many small ones the first fill the
socket's buffer, and the rest wait where they are counted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final

from .load import holding_of

PIECE_BYTES: Final = 64 * 1024
COUNTED: Final = "penstock.counted"  # in an ASGI scope: the maker of the answer counts it


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


async def send_in_pieces(
    scope: Mapping[str, Any],
    event: MutableMapping[str, Any],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Send a large part of an HTTP answer, `event`, in pieces; it counts until the last one is written."""
    body: bytes = event["body"]
    last = not event.get("more_body", False)
    holding = None if scope.get(COUNTED) else holding_of(scope)
    if holding is not None:
        holding.send(len(body))
    try:
        view = memoryview(body)
        for start in range(0, len(view), PIECE_BYTES):
            piece = bytes(view[start : start + PIECE_BYTES])
            more = start + PIECE_BYTES < len(view) or not last
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    finally:
        if holding is not None:
            holding.send(-len(body))
