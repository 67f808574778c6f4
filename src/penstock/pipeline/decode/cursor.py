"""Positions in the payloads of many rows, which move together.

No read looks for the end of its row: positions only grow, so that a row is whole exactly if it ends where its
payload ends, and whatever was read behind it does not count.
"""

import numpy as np

from .raw import Flags, Ints, Numbers, Spans


class Cursor:
    """Where each row is read next, and which rows turned out to be broken."""

    __slots__ = ("at", "bad", "data", "ends", "words")

    def __init__(self, data: Numbers, words: Numbers, at: Ints, ends: Ints) -> None:
        self.data = data
        self.words = words
        self.at = at
        self.ends = ends
        self.bad = np.zeros(len(at), np.bool_)

    def some(self, index: Ints) -> "Cursor":
        """The rows at `index` alone; `back` brings home what became of them."""
        return Cursor(self.data, self.words, self.at[index], self.ends[index])

    def back(self, part: "Cursor", index: Ints) -> None:
        self.at = self.at.copy()  # what was found before holds on to the old places
        self.at[index] = part.at
        self.bad[index] |= part.bad

    def fail(self, flags: Flags) -> None:
        """Broken rows stay at their end."""
        if flags.any():
            self.bad |= flags
            self.at = np.where(flags, self.ends, self.at)

    def byte(self) -> Numbers:
        found = self.data.take(self.at, mode="clip")
        self.at = self.at + 1
        return found

    def long(self) -> Ints:
        """Zigzag, seven bits a byte, of at most ten bytes and 64 bits."""
        raw = self._varint()
        return ((raw >> np.uint64(1)) ^ (np.uint64(0) - (raw & np.uint64(1)))).view(np.int64)

    def small(self) -> Ints:
        """The same, of at most 32 bits."""
        value = self.long()
        self.fail((value < -(1 << 31)) | (value >= 1 << 31))
        return value

    def _varint(self) -> Numbers:
        first = self.byte()
        value = first.astype(np.uint64)
        going = np.flatnonzero(first > 0x7F)
        if not len(going):
            return value
        at = self.at[going]
        found = value[going] & np.uint64(0x7F)
        for shift in range(7, 70, 7):
            byte = self.data.take(at, mode="clip")
            at += 1
            found |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            more = byte > 0x7F
            if shift == 63:
                self.bad[going[byte > 1]] = True  # an eleventh byte, or a 65th bit
                more = np.zeros(len(byte), np.bool_)
            last = going[~more] if more.any() else going
            if len(last) == len(going):
                value[going], self.at[going] = found, at
                break
            value[last], self.at[last] = found[~more], at[~more]
            going, at, found = going[more], at[more], found[more]
        return value

    def word(self, width: int) -> Numbers:
        """`width` bytes, 4 or 8, in a word of eight."""
        found = self.words[np.minimum(self.at, len(self.words) - 1)]
        self.at = self.at + width
        return found

    def span(self, length: Ints) -> Spans:
        """The next `length` bytes; broken where there are not so many."""
        self.fail((length < 0) | (length > self.ends - self.at))
        begins = self.at
        self.at = np.where(self.bad, begins, begins + length)
        return Spans(begins, self.at)
