"""Hashes that place messages, as the clients and brokers of Pulsar and of Kafka compute them.

A key must land in the same partition, and with the same consumer, in every client and in the server.
"""

from struct import unpack_from
from typing import Final

KEY_SHARED_RANGE: Final = 65536  # hashes of Key_Shared are 0 .. 65535

_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF  # Java's Integer.MAX_VALUE clears the sign

MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_FACTOR: Final = 0x5BD1E995
FNV_OFFSET: Final = 0x811C9DC5
FNV_PRIME: Final = 0x01000193


def java_string_hash(key: str) -> int:
    """Java's `String.hashCode`, over UTF-16 units, without its sign."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & _UINT32
    return value & _INT32_MAX


def murmur3_32(data: bytes) -> int:
    """MurmurHash3 x86 32-bit with seed 0, without its sign."""
    size = len(data)
    tail_at = size & ~3
    value = 0
    for at in range(0, tail_at, 4):
        value ^= _scramble(int.from_bytes(data[at : at + 4], "little"))
        value = (value << 13 | value >> 19) & _UINT32
        value = (value * 5 + 0xE6546B64) & _UINT32
    if tail_at < size:
        value ^= _scramble(int.from_bytes(data[tail_at:], "little"))
    value ^= size
    value = ((value ^ value >> 16) * 0x85EBCA6B) & _UINT32
    value = ((value ^ value >> 13) * 0xC2B2AE35) & _UINT32
    return (value ^ value >> 16) & _INT32_MAX


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's Java clients seed it (`Utils.murmur2`), without its sign (`Utils.toPositive`)."""
    factor, size = MURMUR2_FACTOR, len(data)
    value = MURMUR2_SEED ^ size
    for block in unpack_from(f"<{size >> 2}I", data):
        block = block * factor & _UINT32
        block = (block ^ block >> 24) * factor & _UINT32
        value = value * factor & _UINT32 ^ block
    if size & 3:
        value = (value ^ int.from_bytes(data[size & ~3 :], "little")) * factor & _UINT32
    value = (value ^ value >> 13) * factor & _UINT32
    return (value ^ value >> 15) & _INT32_MAX


def fnv1a(data: bytes) -> int:
    """FNV-1a with 32 bits; the absolute value of the signed number, as in Sarama and librdkafka."""
    value = FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * FNV_PRIME & _UINT32
    return value if value <= _INT32_MAX else (1 << 32) - value


def sticky_hash(key: bytes) -> int:
    """The hash of a key if consumers name their ranges: 1 .. 65535, because 0 means "none" to Pulsar."""
    return murmur3_32(key) % KEY_SHARED_RANGE or 1


def ring_hash(key: bytes) -> int:
    """The hash of a key, and of a consumer's points, if consumers are on a ring: 1 .. 65535."""
    return murmur3_32(key) % (KEY_SHARED_RANGE - 1) + 1


def _scramble(block: int) -> int:
    block = (block * 0xCC9E2D51) & _UINT32
    return ((block << 15 | block >> 17) * 0x1B873593) & _UINT32
