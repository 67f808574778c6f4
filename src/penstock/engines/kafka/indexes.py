"""The message indexes in front of Protobuf values (Confluent's framing): which message of the schema's file a value is.

Zigzag varints: how many indexes there are, and they: the number of a message of the file, of one within it, … The file's first
message is a single 0. The entries of maps count, as they do in descriptors.
"""

from collections.abc import Sequence
from typing import Final

INDEXES_MAX: Final = 33  # of one value
FIRST: Final = (b"\0", b"\x02\0")  # both say: the first message of the file


def encode_indexes(place: Sequence[int]) -> bytes:
    """Those of one message."""
    if tuple(place) == (0,):
        return b"\0"
    found = bytearray()
    for number in (len(place), *place):
        left = number << 1
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
    return bytes(found)


def read_indexes(value: bytes, first: int, messages: dict[bytes, int]) -> tuple[int, int]:
    """Which of the messages, which are known by their indexes, those at `first` name, and where they end; -1 for none."""
    if value[first : first + 1] == FIRST[0]:
        return 0, first + 1
    count, at = _integer(value, first)
    if count & 1 or count >> 1 > INDEXES_MAX:  # zigzag: an odd number is below 0
        return -1, at
    for _ in range(count >> 1):
        _, at = _integer(value, at)
    return messages.get(value[first:at], -1), at


def _integer(value: bytes, at: int) -> tuple[int, int]:
    """A varint of at most 5 bytes, and where it ends; -1 where there is none."""
    number = 0
    for shift, byte in enumerate(value[at : at + 5]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return -1, at
