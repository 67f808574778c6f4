"""The message indexes in front of Protobuf values (Confluent's framing): which message of the schema's file a value is.

Zigzag varints: how many indexes there are, and they: the number of a message of the file, of one within it, … The file's first
message is a single 0. The entries of maps count, as they do in descriptors.
"""

from collections.abc import Sequence
from functools import lru_cache

from penstock.codec.proto.native import REMEMBERED, places_of
from penstock.engines.kafka.versions import MESSAGES


@lru_cache(maxsize=REMEMBERED)
def indexes_of(data: bytes) -> tuple[bytes, ...]:
    """Those of each message of a PROTOBUF_NATIVE definition's root file."""
    return tuple(encode_indexes(place) for place in places_of(data)[:MESSAGES])


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
