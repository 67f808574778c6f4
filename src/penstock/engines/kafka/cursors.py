"""Cursors as earlier releases kept them, in a group's commits: the mark is the committed offset, and the metadata has the
acknowledged offsets beyond it.

    "penstock1" | type: one letter | form: r or b | base64 of the bytes

`r`: varints, in turn how many offsets from the mark on are not acknowledged and how many are. `b`: bits from the mark on, the lowest first.
Acknowledgements that did not fit were left out. Other metadata is not a cursor's: then only the committed offset counts.
"""

from base64 import b64decode
from typing import Final

import msgspec

from .driver.groups import Committed

MAGIC: Final = "penstock1"
DELETED: Final = MAGIC + "-"  # metadata of a deleted subscription whose group has others


class Cursor(msgspec.Struct, frozen=True):
    """A cursor as it was committed: `ranges` are acknowledged beyond `mark`, (first, last) each."""

    mark: int
    ranges: tuple[tuple[int, int], ...] = ()


def cursor_of(committed: Committed) -> Cursor | None:
    """The cursor of a commit; None of a subscription that was deleted."""
    text = committed.metadata
    if text.startswith(DELETED):
        return None
    if not text.startswith(MAGIC):
        return Cursor(committed.offset)
    at = len(MAGIC)
    try:
        packed = b64decode(text[at + 2 :], validate=True)
        if text[at + 1 : at + 2] == "b":
            ranges = _ranges_of_bits(committed.offset, packed)
        else:
            ranges = _ranges_of_runs(committed.offset, packed)
    except ValueError:
        ranges = []
    return Cursor(committed.offset, tuple(ranges))


def _ranges_of_runs(mark: int, packed: bytes) -> list[tuple[int, int]]:
    numbers = _varints(packed)
    found, at = [], mark
    for skipped, count in zip(numbers[::2], numbers[1::2], strict=True):
        if not count:
            raise ValueError("a run of none")
        at += skipped + count
        found.append((at - count, at - 1))
    return found


def _ranges_of_bits(mark: int, packed: bytes) -> list[tuple[int, int]]:
    bits, at = int.from_bytes(packed, "little"), mark
    found: list[tuple[int, int]] = []
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        run = (~bits & (bits + 1)).bit_length() - 1
        bits >>= run
        found.append((at + skip, at + skip + run - 1))
        at += skip + run
    return found


def _varints(packed: bytes) -> list[int]:
    found, number, shift = [], 0, 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(number)
            number = shift = 0
    if shift:
        raise ValueError("a varint without an end")
    return found
