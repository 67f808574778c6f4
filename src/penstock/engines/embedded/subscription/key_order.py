"""Order by key in a Key_Shared subscription, also while keys change hands.

A hash with messages out belongs to the consumer that has them. Messages of that hash for anybody else, and all
that follow them, wait aside until those are settled (Pulsar's draining hashes, PIP-379). So do messages whose
consumer has no room, lest the others wait behind them.
"""

from collections.abc import Iterable
from typing import Final

from .receiver import Receiver
from .replay import Slice

ASIDE_MAX: Final = 20_000  # messages waiting aside before reading ahead stops; bounds memory


class KeyOrder:
    """Which hashes are out with whom, and what waits for them."""

    def __init__(self) -> None:
        self._out: dict[int, tuple[Receiver, int]] = {}
        self._aside: dict[int, list[Slice]] = {}
        self._short: dict[Receiver, dict[int, None]] = {}  # who lacks room for which hashes, oldest first
        self.aside = 0

    def may_go(self, key_hash: int, consumer: Receiver) -> bool:
        """Whether a message of this hash may go to `consumer` now, room aside."""
        if key_hash in self._aside:
            return False
        held = self._out.get(key_hash)
        return held is None or held[0] is consumer

    def gone(self, key_hash: int, consumer: Receiver, count: int) -> None:
        """`count` messages of this hash went out."""
        held = self._out.get(key_hash)
        self._out[key_hash] = (consumer, count + (held[1] if held else 0))

    def settled(self, key_hash: int, count: int) -> list[Slice]:
        """`count` messages of this hash came back or were acknowledged; returns what need not wait now."""
        held = self._out.get(key_hash)
        if held is None:
            return []
        left = held[1] - count
        if left > 0:
            self._out[key_hash] = (held[0], left)
            return []
        del self._out[key_hash]
        return self._release((key_hash,))

    def wait(self, key_hash: int, part: Slice, short_of: Receiver | None) -> None:
        """Put messages aside until their hash is free or, with `short_of`, until that consumer has room."""
        self._aside.setdefault(key_hash, []).append(part)
        self.aside += part.mask.bit_count()
        if short_of is not None:
            self._short.setdefault(short_of, {})[key_hash] = None

    def release_all(self) -> list[Slice]:
        """Everything that waits: the consumers changed."""
        self._short.clear()
        return self._release(list(self._aside))

    def release_for_room(self) -> list[Slice]:
        """What waited for room that is there now; no more hashes than there is room for."""
        freed: list[Slice] = []
        for consumer in list(self._short):
            room = consumer.capacity()
            hashes = self._short[consumer]
            chosen = [h for h, _ in zip(hashes, range(max(0, room)), strict=False)]
            for key_hash in chosen:
                del hashes[key_hash]
            if not hashes:
                del self._short[consumer]
            freed += self._release(chosen)
        return freed

    def _release(self, hashes: Iterable[int]) -> list[Slice]:
        freed: list[Slice] = []
        for key_hash in hashes:
            parts = self._aside.pop(key_hash, None)
            if parts:
                freed += parts
                self.aside -= sum(p.mask.bit_count() for p in parts)
        return freed

    @property
    def full(self) -> bool:
        return self.aside >= ASIDE_MAX

    def clear(self) -> None:
        self._out.clear()
        self._aside.clear()
        self._short.clear()
        self.aside = 0
