"""What Key_Shared hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.contents import in_transaction, join, parse, sticky_key, unkeyed
from penstock.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (SingleMessageMetadata(), b"p-7"),
        (SingleMessageMetadata(partition_key="k"), b"k"),
        (SingleMessageMetadata(partition_key="é"), "é".encode()),
        (SingleMessageMetadata(partition_key=""), b""),
        (SingleMessageMetadata(partition_key="", null_partition_key=True), b"p-7"),
        (SingleMessageMetadata(partition_key="AP8=", partition_key_b64_encoded=True), b"\x00\xff"),
        (SingleMessageMetadata(partition_key="not base64", partition_key_b64_encoded=True), b"not base64"),
        (SingleMessageMetadata(partition_key="k", ordering_key=b"o"), b"o"),
        (MessageMetadata(partition_key="k"), b"k"),
        (MessageMetadata.FromString(b"\x32\x02\xff\xfe"), b"\xff\xfe"),  # not UTF-8
    ],
)
def test_sticky_key(metadata: MessageMetadata | SingleMessageMetadata, expected: bytes) -> None:
    assert sticky_key(metadata, "p", 7) == expected


def test_without_key() -> None:
    assert unkeyed("pé", -1) == "pé--1".encode()
    assert unkeyed(b"\xff", 2) == b"\xff-2"


@given(
    st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    st.integers(0, 2**62),
    st.binary(max_size=100),
    st.booleans(),
)
def test_an_entry_of_a_transaction(
    transaction: tuple[int, int], publish_time: int, payload: bytes, named: bool
) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=3, publish_time=5, partition_key="k")
    if named:
        metadata.txnid_most_bits, metadata.txnid_least_bits = 1, 2
    found, body = parse(
        in_transaction(join(metadata.SerializeToString(), payload), transaction, publish_time)
    )
    metadata.publish_time = publish_time
    metadata.txnid_most_bits, metadata.txnid_least_bits = transaction
    assert found == metadata
    assert body == payload
