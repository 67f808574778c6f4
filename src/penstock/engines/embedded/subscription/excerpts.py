"""Which parts of a batch went out as batches of their own, with indexes from 0 on.

An acknowledgement of part of a batch says by index what it leaves. A client may hold messages of the whole batch and
of several such parts at a time, after a reconnect for example, and does not say which of them it counts by.
"""

from typing import Final

from penstock.engines.embedded.log.offsets import OffsetSet

LOOK_AT: Final = 1000  # entries, before those that are acknowledged are forgotten


class Excerpts:
    """The parts of a subscription's entries that were sent since the server started."""

    def __init__(self, cursor: OffsetSet) -> None:
        self._cursor = cursor
        self._parts: dict[
            int, tuple[int, list[int]]
        ] = {}  # by entry: where it ends, and the masks of its parts
        self._look_at = LOOK_AT

    def add(self, entry_id: int, end: int, mask: int) -> None:
        """The messages in `mask` of an entry, which ends before the offset `end`, are sent as a batch."""
        parts = self._parts.setdefault(entry_id, (end, []))[1]
        if mask not in parts:
            parts.append(mask)
        if len(self._parts) > self._look_at:
            mark = self._cursor.mark
            self._parts = {entry: one for entry, one in self._parts.items() if one[0] > mark}
            self._look_at = max(LOOK_AT, 2 * len(self._parts))

    def left(self, entry_id: int, bits: int) -> int:
        """What an acknowledgement leaves of the whole batch: all that it leaves by any of the ways to count."""
        found = bits
        for mask in self._parts.get(entry_id, (0, ()))[1]:
            found |= spread(bits, mask)
        return found


def spread(bits: int, mask: int) -> int:
    """Bits over the messages of a part as bits over those of the whole batch."""
    found = 0
    while bits and mask:
        low = mask & -mask
        if bits & 1:
            found |= low
        mask ^= low
        bits >>= 1
    return found
