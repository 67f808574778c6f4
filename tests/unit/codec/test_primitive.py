"""The types without a definition, byte for byte."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pulsar.schema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.codec.vectors import load, schema

from penstock.codec import codec_for
from penstock.codec.primitive import PRIMITIVE_TYPES
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaType

VECTORS = load("primitives")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['type']}-{v['hex'][:16]}")
def test_vectors(vector: dict[str, Any]) -> None:
    codec = codec_for(schema(vector["type"]))
    payload = bytes.fromhex(vector["hex"])
    assert codec.decode(payload) == vector["plain"]
    for value in (vector["plain"], *vector.get("also", [])):
        assert codec.encode(value) == payload
    codec.check(payload)


def test_every_type_has_a_vector() -> None:
    assert {vector["type"] for vector in VECTORS} == {kind.name for kind in PRIMITIVE_TYPES}


EAST = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("kind", "value", "payload", "back"),
    [
        ("STRING", "é", "c3a9", "é"),
        ("BYTES", b"\0\xff", "00ff", b"\0\xff"),
        ("BYTES", bytearray(b"a"), "61", b"a"),
        ("BYTES", memoryview(b"a"), "61", b"a"),
        ("DATE", date(1970, 1, 2), "0000000005265c00", date(1970, 1, 2)),
        (
            "DATE",
            datetime(1970, 1, 1, 1, tzinfo=UTC),
            "000000000036ee80",
            datetime(1970, 1, 1, 1, tzinfo=UTC),
        ),
        ("TIME", time(0, 0, 1), "00000000000003e8", time(0, 0, 1)),
        (
            "TIMESTAMP",
            datetime(1970, 1, 1, 1, 0, 1, tzinfo=EAST),
            "00000000000003e8",
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        ),
        ("TIMESTAMP", 1000, "00000000000003e8", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("TIMESTAMP", 2**63 - 1, "7fffffffffffffff", 2**63 - 1),
        (
            "INSTANT",
            datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC),
            "000000000000000100001388",
            datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC),
        ),
        ("LOCAL_DATE", date(1969, 12, 31), "ffffffffffffffff", date(1969, 12, 31)),
        ("LOCAL_TIME", time(0, 0, 0, 1), "00000000000003e8", time(0, 0, 0, 1)),
        (
            "LOCAL_DATE_TIME",
            datetime(1970, 1, 2, 0, 0, 0, 1),  # noqa: DTZ001
            "000000000000000100000000000003e8",
            datetime(1970, 1, 2, 0, 0, 0, 1),  # noqa: DTZ001
        ),
    ],
)
def test_native_values(kind: str, value: Any, payload: str, back: Any) -> None:
    codec = codec_for(schema(kind))
    assert codec.encode_native(value).hex() == payload
    assert codec.decode_native(bytes.fromhex(payload)) == back


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("STRING", 5, "value: 5 is no string"),
        ("STRING", "\ud800", "value: text that the charset cannot hold"),
        ("BYTES", "a", "value: 'a' is no base64"),
        ("BYTES", "é===", "value: 'é===' is no base64"),
        ("BOOLEAN", 1, "value: 1 is no boolean"),
        ("INT8", 128, "value: 128 does not fit 8 bits"),
        ("INT16", -32769, "value: -32769 does not fit 16 bits"),
        ("INT32", 2**31, "value: 2147483648 does not fit 32 bits"),
        ("INT64", 2**63, "value: 9223372036854775808 does not fit 64 bits"),
        ("INT32", 1.0, "value: 1.0 is no int32"),
        ("INT32", True, "value: true is no int32"),
        ("INT32", "1", "value: '1' is no int32"),
        ("FLOAT", 1e39, "value: 1e+39 is no float"),
        ("DOUBLE", "1", "value: '1' is no double"),
        ("DATE", "2020-02-30", "value: '2020-02-30' is no date"),
        ("DATE", "20200101", "value: '20200101' is no date"),
        ("TIME", "24:00:00", "value: '24:00:00' is no time"),
        ("TIMESTAMP", "2020-01-01", "value: '2020-01-01' is no timestamp"),
        ("TIMESTAMP", "2020-01-01T00:00:00+19:00", "value: '2020-01-01T00:00:00+19:00' is no timestamp"),
        ("TIMESTAMP", None, "value: null is no timestamp"),
        ("INSTANT", 5, "value: 5 is no instant"),
        ("LOCAL_DATE_TIME", "2020-01-01T00:00:00Z", "value: '2020-01-01T00:00:00Z' is no local_date_time"),
    ],
)
def test_what_does_not_fit(kind: str, value: Any, why: str) -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(schema(kind)).encode(value)
    assert caught.value.kind is ErrorKind.BAD_MESSAGE
    assert caught.value.message == why


@pytest.mark.parametrize("kind", sorted(PRIMITIVE_TYPES))
@given(payload=st.binary(max_size=20))
def test_any_bytes(kind: SchemaType, payload: bytes) -> None:
    codec = codec_for(schema(kind))
    try:
        value = codec.decode(payload)
    except PenstockError as error:
        if error.kind is not ErrorKind.BAD_MESSAGE:
            raise
        return
    codec.decode_native(payload)
    if kind is not SchemaType.BOOLEAN and value == value:  # every byte but 0 is true; no two NaN are equal
        assert codec.encode(value) == payload


def test_other_charsets() -> None:
    codec = codec_for(schema("STRING", __charset="ISO-8859-1"))
    assert codec.encode("é") == b"\xe9"
    with pytest.raises(PenstockError, match="charset"):
        codec.encode("€")
    with pytest.raises(PenstockError, match="unknown charset 'KLINGON'"):
        codec_for(schema("STRING", __charset="KLINGON"))


def test_as_the_official_client() -> None:
    theirs, ours = pulsar.schema.StringSchema(), codec_for(schema("STRING"))
    assert ours.encode("héllo 😀") == theirs.encode("héllo 😀")
    assert theirs.decode(ours.encode("ø")) == "ø"
