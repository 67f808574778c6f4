"""How a payload was encrypted, through an entry and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.entry import Entry
from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.wire import entry as wire
from penstock.wire.contents import parse
from penstock.wire.metadata import sized
from penstock.wire.pulsar_pb2 import MessageMetadata

texts = st.text(max_size=10)
encryptions = st.builds(
    Encryption,
    keys=st.lists(
        st.builds(EncryptionKey, texts, st.binary(max_size=10), st.dictionaries(texts, texts, max_size=2)),
        min_size=1,
        max_size=3,
    ).map(tuple),
    param=st.binary(max_size=16),
    algorithm=texts,
    compression=st.sampled_from(["LZ4", "ZLIB", "ZSTD", "SNAPPY"]),
    uncompressed_size=st.integers(0, 2**31 - 1),
)


def entry_of(message: OutMessage) -> bytes:
    made = wire.encode([message], producer="p", sequence_id=1, publish_time=2, schema_version=3)
    return made.data


@given(encryptions, st.integers(0, 10))
def test_what_is_written_is_read_and_is_what_protobuf_writes(encryption: Encryption, event_time: int) -> None:
    message = OutMessage(payload=b"sealed", key="k", event_time=event_time, encryption=encryption)
    data = entry_of(message)
    (read,) = wire.decode(Entry(0, 0, 0, 1, 2, 0, data))
    assert read.encryption == encryption
    assert (read.payload, read.key, read.event_time) == (b"sealed", "k", event_time)
    metadata, _ = parse(data)
    assert metadata.SerializeToString() in data


@pytest.mark.parametrize("size", [0, 5])
def test_an_encrypted_batch_says_how_many_it_holds(size: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, encryption_param=b"iv")
    metadata.encryption_keys.add(key="a", value=b"b")
    if size:
        metadata.num_messages_in_batch = size
    head = metadata.SerializeToString()
    data = len(head).to_bytes(4, "big") + head + sized(b"x")
    (read,) = wire.decode(Entry(0, 0, 0, size or 1, 1, 0, data))
    assert read.encryption is not None
    assert read.encryption.batch_size == size
