"""Sets of small numbers as the bits of an integer: bit i is message i of an entry."""

from collections.abc import Iterator


def bits_of(mask: int) -> Iterator[int]:
    """The indexes of the bits set, ascending."""
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
