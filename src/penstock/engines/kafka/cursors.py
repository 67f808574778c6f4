"""Cursors in a group's commits: the mark is the committed offset, and what is acknowledged beyond it is in the metadata.

    "penstock1" | type: one letter | form: r or b | base64 of the bytes

`r`: varints, in turn how many offsets from the mark on are not acknowledged and how many are. `b`: bits from the mark on, the lowest first.
The shorter one is taken; what does not fit into the broker's `offset.metadata.max.bytes` is left out from the far end, and then
delivered again after a restart. Metadata of others is no cursor's: then only the committed offset counts.
"""

from base64 import b64decode, b64encode
from typing import Final

import msgspec

from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.policy import SubscriptionType

from .driver.groups import Committed

METADATA_MAX: Final = 4095  # characters: one below the broker's default of 4096, which it refuses itself
MAGIC: Final = "penstock1"
DELETED: Final = MAGIC + "-"  # of a subscription that was deleted, while its group has others

_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: "E",
    SubscriptionType.FAILOVER: "F",
    SubscriptionType.SHARED: "S",
    SubscriptionType.KEY_SHARED: "K",
}
_BY_LETTER: Final = {letter: kind for kind, letter in _TYPES.items()}
_UNKNOWN: Final = "?"
_BYTES_MAX: Final = (METADATA_MAX - len(MAGIC) - 2) // 4 * 3


class Cursor(msgspec.Struct, frozen=True):
    """A cursor as it was committed: `ranges` are acknowledged beyond `mark`, (first, last) each; `type` is who used it last."""

    mark: int
    ranges: tuple[tuple[int, int], ...] = ()
    type: SubscriptionType | None = None


def committed_cursor(cursor: OffsetSet, type: SubscriptionType | None) -> tuple[Committed, int]:
    """A cursor as a commit, and how many acknowledged offsets did not fit into it."""
    head = MAGIC + _TYPES.get(type, _UNKNOWN) if type is not None else MAGIC + _UNKNOWN
    if not cursor.beyond:
        return Committed(cursor.mark, head), 0
    runs, in_runs = _runs(cursor)
    form, found, kept = "r", runs, in_runs
    if in_runs < cursor.beyond or len(runs) > _BYTES_MAX // 4:
        bits, in_bits = _bits(cursor)
        if in_bits > in_runs or (in_bits == in_runs and len(bits) < len(runs)):
            form, found, kept = "b", bits, in_bits
    return Committed(cursor.mark, f"{head}{form}{b64encode(found).decode()}"), cursor.beyond - kept


def cursor_of(committed: Committed) -> Cursor | None:
    """The cursor of a commit; None of a subscription that was deleted."""
    text = committed.metadata
    if text.startswith(DELETED):
        return None
    if not text.startswith(MAGIC):
        return Cursor(committed.offset)
    at = len(MAGIC)
    kind = _BY_LETTER.get(text[at : at + 1])
    try:
        packed = b64decode(text[at + 2 :], validate=True)
        if text[at + 1 : at + 2] == "b":
            ranges = _ranges_of_bits(committed.offset, packed)
        else:
            ranges = _ranges_of_runs(committed.offset, packed)
    except ValueError:
        ranges = []
    return Cursor(committed.offset, tuple(ranges), kind)


def _runs(cursor: OffsetSet) -> tuple[bytes, int]:
    found, kept, at = bytearray(), 0, cursor.mark
    for first, last in cursor.ranges():
        some = _varint(first - at) + _varint(last + 1 - first)
        if len(found) + len(some) > _BYTES_MAX:
            break
        found += some
        kept += last + 1 - first
        at = last + 1
    return bytes(found), kept


def _bits(cursor: OffsetSet) -> tuple[bytes, int]:
    bits = cursor.mask(cursor.mark, 8 * _BYTES_MAX)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little"), bits.bit_count()


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


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


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
