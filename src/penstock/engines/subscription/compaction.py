"""Compaction: of each key only the last value, for consumers that ask for that (Pulsar's topic compaction).

Nothing is rewritten: the retained messages are a set of offsets up to a horizon, stored apart from the log and applied when a
`compacted` subscription reads. Messages published after the horizon are read unchanged.
"""

from typing import Final, Self

from penstock.broker import topic

BLOCK: Final = 1 << 16  # offsets in one block of the set: 8 KiB


class Kept:
    """The offsets below `horizon` that compaction left."""

    def __init__(self, horizon: int, blocks: dict[int, bytearray] | None = None) -> None:
        self.horizon = horizon
        self.blocks = blocks or {}

    def add(self, offset: int) -> None:
        number, at = divmod(offset, BLOCK)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = bytearray(BLOCK // 8)
        block[at >> 3] |= 1 << (at & 7)

    def mask(self, offset: int, count: int) -> int:
        """The visible ones of the `count` messages from `offset` on, as bits."""
        found = 0
        done = 0
        known = min(count, max(0, self.horizon - offset))
        while done < known:
            number, at = divmod(offset + done, BLOCK)
            taken = min(BLOCK - at, known - done)
            block = self.blocks.get(number)
            if block is not None:
                data = block[at >> 3 : (at + taken + 7) >> 3]
                bits = int.from_bytes(data, "little") >> (at & 7) & ((1 << taken) - 1)
                found |= bits << done
            done += taken
        return found | ((1 << count) - 1) >> known << known

    def next(self, offset: int) -> int:
        """The first visible offset from `offset` on."""
        at = offset
        while at < self.horizon:
            number, first = divmod(at, BLOCK)
            block = self.blocks.get(number)
            bits = 0 if block is None else int.from_bytes(block, "little") >> first
            if bits:
                return at + (bits & -bits).bit_length() - 1
            at = (number + 1) * BLOCK
        return max(offset, self.horizon)

    @property
    def last(self) -> int:
        """The last retained offset, -1 if there is none."""
        if not self.blocks:
            return -1
        number = max(self.blocks)
        return number * BLOCK + int.from_bytes(self.blocks[number], "little").bit_length() - 1


class Compaction(topic.Compaction):
    """The compaction of one topic: the messages that remain, and the result of the last run."""

    kept: Kept | None = None

    @classmethod
    def of(cls, kept: Kept | None) -> Self:
        """Of a topic that is being opened; None if it was never compacted."""
        return cls("NOT_RUN" if kept is None else "SUCCESS", kept=kept)
