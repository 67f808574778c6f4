"""Where new subscriptions begin, where several processes begin one at once.

Kafka stores whichever commit comes last, and then messages between two beginnings would be missed by who began first. So who begins at
a position of its own says so in a document that is stored once: the first in the log counts for all.
"""

import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .documents import Documents
from .driver.record import At

KIND: Final = "beginnings"
OLD_MS: Final = 60_000  # then it is of a process that ended within


class _Beginning(msgspec.Struct, frozen=True):
    mark: int
    by: str
    created_ms: int


class Beginnings:
    """Those of every process."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    @asynccontextmanager
    async def agreed(self, group: str, wanted: Mapping[At, int]) -> AsyncIterator[dict[At, int]]:
        """Where partitions begin: as wanted, or as another process wanted before. What is committed within is so for all."""
        keys = {at: f"{at[0]}\n{at[1]}\n{group}" for at in wanted}
        by, now = secrets.token_hex(8), time.time_ns() // 1_000_000
        found = await self._found()
        left = [key for key in keys.values() if key in found and now - found[key].created_ms > OLD_MS]
        try:
            if left:
                await self._documents.save_meta([(KIND, key, None) for key in left])
            rows = [
                (KIND, keys[at], msgspec.json.encode(_Beginning(mark, by, now)))
                for at, mark in wanted.items()
            ]
            await self._documents.save_meta(rows)
        except PenstockError as error:
            if error.kind not in (ErrorKind.ALREADY_EXISTS, ErrorKind.NOT_SUPPORTED):
                raise
        found = await self._found()
        own = [key for key in keys.values() if key in found and found[key].by == by]
        try:
            yield {at: found[key].mark if (key := keys[at]) in found else mark for at, mark in wanted.items()}
        finally:
            if own:
                await self._documents.save_meta([(KIND, key, None) for key in own])

    async def _found(self) -> dict[str, _Beginning]:
        found: dict[str, _Beginning] = {}

        def learn(key: str, document: bytes | None) -> None:
            found[key] = msgspec.json.decode(document or b"", type=_Beginning)

        self._documents.reader.read_all(KIND, await self._documents.load_meta(KIND), learn)
        return found
