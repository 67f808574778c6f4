"""Sets of small numbers as the bits of an integer: bit i is message i of an entry."""

from collections.abc import Iterable, Iterator


def bits_of(mask: int) -> Iterable[int]:
    """The indexes of the bits set, ascending."""
    low = mask & -mask
    if mask & (mask + low):
        return _bits_of(mask)
    return (
        range(low.bit_length() - 1, mask.bit_length()) if mask else ()
    )  # they follow one another, as nearly always


def _bits_of(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest of the bits set."""
    if mask.bit_count() <= count:
        return mask
    if not mask & (mask + 1):
        return (1 << count) - 1
    taken = 0
    for _ in range(count):
        low = mask & -mask
        taken |= low
        mask ^= low
    return taken
