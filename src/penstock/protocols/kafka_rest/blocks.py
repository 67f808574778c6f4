"""Stretches of logs as frames, kept in memory within one bound: the bytes of a log never change."""

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from .framing import render

BLOCKS_BYTES: Final = 32 * 1024 * 1024  # as much as the broker's own tails
LARGE_SHARE: Final = 4  # a block of more than a quarter of the bound would only drive out the others


class Block(NamedTuple):
    """The frames of the entries `entry_id .. until_entry - 1`; `starts` are positions in the log."""

    entry_id: int
    until_entry: int
    position: int
    frames: bytes
    starts: "array[int]"

    @property
    def end(self) -> int:
        return self.position + len(self.frames)

    def boundary(self, at: int) -> int:
        """The start of the first message at or after `at`; the block's end without one."""
        found = bisect_left(self.starts, at)
        return self.starts[found] if found < len(self.starts) else self.end

    def cut(self, start: int, end: int) -> bytes:
        """The bytes from one position to another, as far as they are here."""
        return self.frames[max(0, start - self.position) : max(0, end - self.position)]

    def grown(self, until_entry: int, payloads: Iterable[bytes]) -> "Block":
        """The block with the messages that follow it."""
        more, starts = render(payloads, self.end)
        frames = self.frames + more if self.frames else more
        return Block(self.entry_id, until_entry, self.position, frames, self.starts + starts)


class Blocks:
    """The blocks in use, of all logs; the least recently used go first."""

    def __init__(self, bytes_max: int = BLOCKS_BYTES) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._held: OrderedDict[tuple[int, int], Block] = OrderedDict()

    def get(self, ledger: int, entry_id: int) -> Block | None:
        found = self._held.get((ledger, entry_id))
        if found is not None:
            self._held.move_to_end((ledger, entry_id))
        return found

    def put(self, ledger: int, block: Block) -> None:
        before = self._held.pop((ledger, block.entry_id), None)
        if before is not None:
            self._bytes -= _weight(before)
        weight = _weight(block)
        if weight * LARGE_SHARE > self._bytes_max:
            return
        self._held[ledger, block.entry_id] = block
        self._bytes += weight
        while self._bytes > self._bytes_max:
            _, gone = self._held.popitem(last=False)
            self._bytes -= _weight(gone)


def _weight(block: Block) -> int:
    return len(block.frames) + block.starts.itemsize * len(block.starts)
