"""Compression: round trips, known streams, and what must not get through."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.outcome import refusal

from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX, compress, decompress
from penstock.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD

KINDS = [NONE, LZ4, ZLIB, ZSTD, SNAPPY]
COMPRESSED = [LZ4, ZLIB, ZSTD, SNAPPY]


def refused(kind: int, data: bytes, size: int) -> str:
    with pytest.raises(PenstockError) as error:
        decompress(kind, data, size)
    assert error.value.kind is ErrorKind.BAD_ENCODING
    return error.value.message


@pytest.mark.parametrize("kind", KINDS)
@given(
    data=st.binary(max_size=300) | st.builds(lambda b, n: b * n, st.binary(max_size=9), st.integers(0, 999))
)
def test_round_trip(kind: int, data: bytes) -> None:
    assert decompress(kind, compress(kind, data), len(data)) == data


@pytest.mark.parametrize("kind", COMPRESSED)
def test_repetition_shrinks(kind: int) -> None:
    assert len(compress(kind, b"hello world " * 500)) < 500


def test_streams_of_other_makers() -> None:
    assert decompress(ZLIB, zlib.compress(b"hello hello hello"), 17) == b"hello hello hello"
    stream = zlib.compressobj()  # as Pulsar's Java client has it: flushed, and without an end
    flushed = stream.compress(b"hello hello hello") + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompress(ZLIB, flushed, 17) == b"hello hello hello"
    refused(ZLIB, flushed, 16)
    refused(ZLIB, flushed, 18)
    refused(ZLIB, flushed[:-1], 17)
    # An LZ4 block: 5 literals, then a match of 10 at distance 5, then 5 literals.
    assert decompress(LZ4, b"\x56hello\x05\x00\x50olleh", 20) == b"hellohellohelloolleh"
    # A raw Snappy block: its size, then 5 literals.
    assert decompress(SNAPPY, b"\x05\x10hello", 5) == b"hello"
    assert zlib.decompress(compress(ZLIB, b"hello")) == b"hello"


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("claim", [0, 1, 1199, 1201, 100_000])
def test_a_wrong_claim_is_refused(kind: int, claim: int) -> None:
    refused(kind, compress(kind, b"hello world " * 100), claim)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_claim_beyond_the_bound_is_refused_unseen(kind: int) -> None:
    assert "at most" in refused(kind, b"", UNCOMPRESSED_BYTES_MAX + 1)


@pytest.mark.parametrize("kind", [ZLIB, ZSTD])
def test_a_bomb_gets_no_more_memory_than_it_claims(kind: int) -> None:
    bomb = compress(kind, bytes(20_000_000))
    assert len(bomb) < 30_000
    refused(kind, bomb, 1000)


def test_an_unknown_kind_is_refused() -> None:
    refused(99, b"x", 1)


@pytest.mark.parametrize("kind", COMPRESSED)
@given(data=st.binary(max_size=200), size=st.integers(0, 500))
def test_any_bytes_are_a_payload_or_refused(kind: int, data: bytes, size: int) -> None:
    if refusal(lambda: decompress(kind, data, size)) is not ErrorKind.BAD_ENCODING:
        assert len(decompress(kind, data, size)) == size


@pytest.mark.parametrize("kind", COMPRESSED)
@given(st.data())
def test_any_damage_is_refused_or_harmless(kind: int, data: st.DataObject) -> None:
    damaged = bytearray(compress(kind, b"hello world, hello " * 10))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    if refusal(lambda: decompress(kind, bytes(damaged), 190)) is not ErrorKind.BAD_ENCODING:
        assert len(decompress(kind, bytes(damaged), 190)) == 190
