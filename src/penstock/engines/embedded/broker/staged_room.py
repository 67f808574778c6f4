"""How much may be staged: in the store by writer and in all, in memory by role."""

from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StageKey

from .staged import Batches

# Of one role, or of one address without authentication, lest one takes the room of all.
BATCHES_MAX: Final = 10_000
PIECES_MAX: Final = 2_000_000  # parts, and logs of stages: about 100 bytes of memory each


def check_room(batches: Batches, settings: BrokerSettings, key: StageKey, origin: str, size: int) -> None:
    """Raise TOO_MANY_REQUESTS, TOO_LARGE or STORAGE_FULL where `size` more bytes may not be staged."""
    new = key.batch not in batches.of(key.writer)
    if new and batches.count_of(origin) >= BATCHES_MAX:
        raise PenstockError(
            ErrorKind.TOO_MANY_REQUESTS, f"{BATCHES_MAX} batches are being staged by {origin or 'writers'}"
        )
    if batches.pieces_of(origin) >= PIECES_MAX:
        raise PenstockError(
            ErrorKind.TOO_MANY_REQUESTS, f"{PIECES_MAX} parts are being staged by {origin or 'writers'}"
        )
    held = batches.size_of(key.writer)
    if held + size > settings.max_staged_bytes_per_writer:
        raise PenstockError(
            ErrorKind.TOO_LARGE,
            f"writer {key.writer} has staged {held} bytes; broker.max_staged_bytes_per_writer is"
            f" {settings.max_staged_bytes_per_writer}",
        )
    if batches.size_bytes + size > settings.max_staged_bytes:
        raise PenstockError(
            ErrorKind.STORAGE_FULL,
            f"{batches.size_bytes} bytes are staged by all writers; broker.max_staged_bytes is"
            f" {settings.max_staged_bytes}",
        )
