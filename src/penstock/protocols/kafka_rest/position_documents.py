"""Where the points of one log are kept: documents in the broker's store, each of many points.

A full document never changes; the points after the last one are found again by reading. `floor` is the point
that the last trim left the log with: what is before it can be read no more.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.broker.topic import Documents

POINTS_PER_DOCUMENT: Final = 256  # of 256 KiB each: a restart reads at most the last 64 MiB again

_FLOOR: Final = "floor"
_POINT: Final = struct.Struct(">QQ")


class Point(NamedTuple):
    """An entry, and the position at which its first message begins."""

    entry_id: int
    position: int


class PositionDocuments:
    """The documents of one log. A kind of their own, as a store loads all documents of a kind."""

    def __init__(self, store: Documents, ledger: int) -> None:
        self._store = store
        self._kind = f"positions-{ledger}"
        self._lasts: dict[str, int] = {}  # the last entry that each document tells of

    async def load(self) -> list[Point]:
        """Every point kept, in order."""
        points: set[Point] = set()
        for key, document in (await self._store.load_meta(self._kind)).items():
            read = [Point(*pair) for pair in _POINT.iter_unpack(document)]
            points.update(read)
            if key != _FLOOR and read:
                self._lasts[key] = read[-1].entry_id
        return sorted(points)

    async def keep(self, points: Sequence[Point]) -> None:
        """Store a document; raises what the store raises."""
        key = f"{points[0].entry_id:020}"
        await self._store.save_meta([(self._kind, key, _document(points))])
        self._lasts[key] = points[-1].entry_id

    async def keep_floor(self, floor: Point, first_entry: int) -> None:
        """Store the point that a trim is about to leave; what tells only of before `first_entry` may go.

        Completes when it is durable; raises what the store raises.
        """
        gone = [key for key, last in self._lasts.items() if last < first_entry]
        await self._store.save_meta(
            [(self._kind, _FLOOR, _document([floor])), *((self._kind, key, None) for key in gone)]
        )
        for key in gone:
            del self._lasts[key]

    async def clear(self) -> None:
        """Forget everything."""
        keys = await self._store.load_meta(self._kind)
        await self._store.save_meta([(self._kind, key, None) for key in keys])
        self._lasts.clear()


def _document(points: Sequence[Point]) -> bytes:
    return b"".join(_POINT.pack(*point) for point in points)
