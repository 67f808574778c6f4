"""The checksum in front of an entry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.contents import crc32c, seal, unseal, with_checksum


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720 B.4, this and the next
        (b"\xff" * 32, 0x62A8AB43),
    ],
)
def test_crc32c_of_known_data(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_the_bytes_of_a_sealed_body() -> None:
    assert seal(b"123456789") == bytes.fromhex("0e01e3069283") + b"123456789"


@given(st.binary(max_size=50).filter(lambda body: not body.startswith(b"\x0e\x01")))
def test_sealing_round_trip(body: bytes) -> None:
    assert unseal(body) == body
    assert unseal(seal(body)) == body
    assert with_checksum(body) == with_checksum(with_checksum(body)) == seal(body)


@given(st.binary(max_size=50), st.data())
def test_any_flipped_bit_is_noticed(body: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal(body))
    bit = data.draw(st.integers(16, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PenstockError) as error:
        unseal(bytes(sealed))
    assert error.value.kind is ErrorKind.CHECKSUM


@pytest.mark.parametrize("size", range(2, 6))
def test_a_checksum_cut_short(size: int) -> None:
    with pytest.raises(PenstockError) as error:
        unseal(seal(b"")[:size])
    assert error.value.kind is ErrorKind.BAD_ENCODING
