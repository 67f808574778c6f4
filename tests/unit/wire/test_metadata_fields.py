"""Hand-written fields against protobuf's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire import metadata as fields
from penstock.wire.metadata import ENTRIES_MAX, VALUE_BYTES_MAX, Memo
from penstock.wire.pulsar_pb2 import SingleMessageMetadata


@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 16383, 16384, 2097151, 2097152]))
def test_integers(value: int) -> None:
    theirs = SingleMessageMetadata(payload_size=0, sequence_id=value % 2**64).SerializePartialToString()
    assert b"\x18\x00\x40" + fields.integer(value) == theirs
    assert fields.signed(value % 2**64) == value


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200])
def test_integers_beyond_64_bits(value: int) -> None:
    with pytest.raises(PenstockError) as error:
        fields.integer(value)
    assert error.value.kind is ErrorKind.BAD_ENCODING
    with pytest.raises(PenstockError):
        fields.schema_version_bytes(value)


@given(st.dictionaries(st.text(max_size=200), st.text(max_size=200), max_size=4))
def test_properties(values: dict[str, str]) -> None:
    theirs = SingleMessageMetadata(payload_size=1)
    for name, value in values.items():
        theirs.properties.add(key=name, value=value)
    assert fields.properties(b"\x0a", values) + b"\x18\x01" == theirs.SerializeToString()


def test_texts_without_bytes() -> None:
    with pytest.raises(PenstockError) as error:
        fields.text("\ud800")
    assert error.value.kind is ErrorKind.BAD_ENCODING


@pytest.mark.parametrize(
    ("data", "version"),
    [(b"", None), (bytes(8), 0), (b"\x02", 2), (b"\xff", 255), (bytes(7) + b"\x05", 5), (b"\xff" * 8, -1)],
)
def test_schema_versions(data: bytes, version: int | None) -> None:
    assert fields.schema_version_number(data) == version
    if len(data) == 8 and version is not None:
        assert fields.schema_version_bytes(version) == data


def test_a_schema_version_beyond_64_bits() -> None:
    with pytest.raises(PenstockError):
        fields.schema_version_number(bytes(9))


def test_values_are_made_once() -> None:
    made: list[int] = []

    def make(size: int) -> bytes:
        made.append(size)
        return bytes(size)

    memo: Memo[int] = Memo(make)
    assert memo[3] == memo[3] == b"\0\0\0"
    assert made == [3]


def test_it_never_holds_more_than_it_may() -> None:
    memo: Memo[int] = Memo(lambda n: b"%d" % n)
    for n in range(3 * ENTRIES_MAX):
        assert memo[n] == b"%d" % n
        assert len(memo) <= ENTRIES_MAX


def test_long_values_are_not_kept() -> None:
    memo: Memo[int] = Memo(bytes)
    assert len(memo[VALUE_BYTES_MAX + 1]) == VALUE_BYTES_MAX + 1
    assert len(memo[VALUE_BYTES_MAX]) == VALUE_BYTES_MAX
    assert list(memo) == [VALUE_BYTES_MAX]
