"""Payload compression, as Pulsar's clients do it: LZ4 and Snappy as raw blocks, ZLIB and ZSTD as streams.

The uncompressed size is sent with the payload, so that a decompressed payload has exactly that size and
nothing ever needs more memory.
"""

import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam

from penstock.model.errors import ErrorKind, PenstockError

from .pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD

# Pulsar bounds a payload as it is on the wire (5 MiB), but not what it may unfold to.
UNCOMPRESSED_BYTES_MAX: Final = 64 << 20


FLUSHED: Final = b"\0\0\xff\xff"  # so Pulsar's Java client leaves a stream of ZLIB, which it does not end


def _compress_lz4(data: bytes) -> Any:
    return cramjam.lz4.compress_block(data, store_size=False)


_COMPRESS: Final[dict[int, Callable[[bytes], Any]]] = {
    LZ4: _compress_lz4,
    ZLIB: cramjam.zlib.compress,
    ZSTD: cramjam.zstd.compress,
    SNAPPY: cramjam.snappy.compress_raw,
}


def _decompress_zlib(data: bytes, buffer: bytearray) -> int:
    try:
        return int(cramjam.zlib.decompress_into(data, buffer))
    except cramjam.DecompressionError:
        if not data.endswith(FLUSHED):
            raise
        open_stream = zlib.decompressobj()
        found = open_stream.decompress(data, len(buffer) + 1)
        buffer[:] = found
        return len(found)


# Each fills a buffer and returns how much it wrote; more than fits in is an error.
_DECOMPRESS: Final[dict[int, Callable[[bytes, bytearray], int]]] = {
    LZ4: cramjam.lz4.decompress_block_into,
    ZLIB: _decompress_zlib,
    ZSTD: cramjam.zstd.decompress_into,
    SNAPPY: cramjam.snappy.decompress_raw_into,
}


def compress(kind: int, data: bytes) -> bytes:
    """Compress by `CompressionType`."""
    return data if kind == NONE else bytes(_COMPRESS[kind](data))


def decompress(kind: int, data: bytes, size: int) -> bytes:
    """Decompress to exactly `size` bytes. Raises BAD_ENCODING."""
    if kind == NONE:
        return data
    if size > UNCOMPRESSED_BYTES_MAX:
        raise PenstockError(
            ErrorKind.BAD_ENCODING, f"a payload of {size} bytes; at most {UNCOMPRESSED_BYTES_MAX} are taken"
        )
    buffer = bytearray(size)
    try:
        written = _DECOMPRESS[kind](data, buffer)
    except (cramjam.DecompressionError, zlib.error, KeyError):
        raise PenstockError(ErrorKind.BAD_ENCODING, "the payload cannot be decompressed") from None
    if written != size:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"a payload of {written} bytes that claims to be {size}")
    return bytes(buffer)
