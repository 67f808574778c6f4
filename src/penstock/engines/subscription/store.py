"""What a subscription asks of a store: that its cursor is kept."""

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

import msgspec

READ_BYTES: Final = 1 << 20  # one read of a log; large enough to be efficient, small enough to be fair


class CursorChange(msgspec.Struct):
    """What changed in a subscription's cursor since the last save.

    Every message below offset `mark` is acknowledged. Beyond it acknowledged messages are bits: chunk `n`
    covers the offsets `n * 4096 ..`, least significant bit first within a little-endian number; None drops a
    chunk. `properties` None leaves them as they were.
    """

    ledger: int
    subscription: str
    mark: int
    chunks: dict[int, bytes | None]
    properties: bytes | None = None


class CursorWriter(Protocol):
    """Keeps cursors durably, one per log and subscription."""

    def save_cursors(self, changes: Sequence[CursorChange]) -> Awaitable[None]:
        """Store all changes, in order, or none; completes when they are durable.

        Creates cursors that are not there. Raises TOPIC_NOT_FOUND for an unknown ledger, STORAGE_FULL,
        STORAGE_FAILED.
        """
        ...

    def delete_cursor(self, ledger: int, subscription: str) -> Awaitable[None]:
        """Delete a cursor; nothing happens if there is none."""
        ...
