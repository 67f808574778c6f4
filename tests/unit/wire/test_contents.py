"""What Key_Shared hashes."""

import pytest

from penstock.wire.contents import sticky_key, unkeyed
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
