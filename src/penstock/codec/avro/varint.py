"""Avro's integers: zigzag, then seven bits a byte, the lowest first."""

from typing import Final

# Fourteen bits a look-up, ready made: two bytes with more to follow, and the last one or two.
_ENDING: Final = [bytes((n,)) for n in range(0x80)]
_GOING_ON: Final = [bytes((n | 0x80,)) for n in range(0x80)]
_MORE: Final = [low + high for high in _GOING_ON for low in _GOING_ON]
_LAST: Final = _ENDING + [low + high for high in _ENDING[1:] for low in _GOING_ON]


def encode_long(value: int) -> bytes:
    """Any 64-bit integer; the caller has checked the range."""
    n = (value << 1) ^ (value >> 63)
    if n < 0x4000:
        return _LAST[n]
    out = _MORE[n & 0x3FFF]
    n >>= 14
    while n > 0x3FFF:
        out += _MORE[n & 0x3FFF]
        n >>= 14
    return out + _LAST[n]


def read_more(data: bytes, at: int, low: int) -> tuple[int, int]:
    """The rest of an integer whose first byte, already read, had its top bit set.

    Returns it still in zigzag, and the start of the next value. Raises ValueError, IndexError.
    """
    value, shift = low & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("an integer of more than ten bytes")
    if value >> 64:
        raise ValueError("an integer of more than 64 bits")
    return value, at
