"""Protobuf's varints: seven bits a byte, the lowest first; the last byte has no high bit."""

from collections.abc import Iterable
from typing import Final

CONTINUED: Final = tuple(bytes((n | 0x80,)) for n in range(0x80))  # the first byte of a longer varint
_UINT64: Final = 2**64
_POSITIVE_BYTES_MAX: Final = 9  # what is larger is negative to Pulsar's clients, or no varint to protobuf


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a protobuf varint."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint of at most ten bytes; returns the value and where the next field starts."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("varint cut short or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _UINT64, at
        shift += 7


def read_positive(data: bytes, at: int) -> tuple[int, int]:
    """As `read_varint`, fast, for a number below 2^63; raises ValueError for others, and IndexError."""
    low = data[at]
    if low < 0x80:
        return low, at + 1
    middle = data[at + 1]
    if middle < 0x80:
        return low & 0x7F | middle << 7, at + 2
    high = data[at + 2]
    if high < 0x80:
        return low & 0x7F | (middle & 0x7F) << 7 | high << 14, at + 3
    value, end = read_varint(data, at)
    if end - at > _POSITIVE_BYTES_MAX:
        raise ValueError("not for here")
    return value, end


def varints(numbers: Iterable[int]) -> list[bytes]:
    """The varint of each number, none of them negative; cheap where neighbours differ in their last bits only."""
    made: list[bytes] = []
    high, rest = -1, b""
    for number in numbers:
        if number < 0x80:
            made.append(varint(number))
            continue
        if number >> 7 != high:
            high = number >> 7
            rest = varint(high)
        made.append(CONTINUED[number & 0x7F] + rest)
    return made


def run_varints(first: int, count: int) -> list[bytes]:
    """The varint of each number from `first`, which is not negative, up to `first + count`."""
    made: list[bytes] = []
    while count > 0:
        if first < 0x80:
            made.append(varint(first))
            first, count = first + 1, count - 1
            continue
        rest, low = varint(first >> 7), first & 0x7F
        made += [one + rest for one in CONTINUED[low : low + count]]  # at most up to the next multiple of 128
        first, count = first + 0x80 - low, count - (0x80 - low)
    return made
