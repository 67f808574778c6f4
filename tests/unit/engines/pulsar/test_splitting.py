"""Batches as entries of one message each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.pulsar.staging.parts import check_splits, split_batch
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage
from penstock.wire import entry as wire
from penstock.wire.contents import compressed, join, parse
from penstock.wire.pulsar_pb2 import LZ4, NONE, ZSTD, EncryptionKeys, MessageMetadata

MESSAGES = st.builds(
    OutMessage,
    payload=st.binary(max_size=30) | st.just(bytes(5000)),
    key=st.none() | st.text("abé", max_size=3),
    ordering_key=st.none() | st.binary(min_size=1, max_size=3),
    properties=st.none() | st.dictionaries(st.text("ab", min_size=1), st.text("ab"), min_size=1, max_size=2),
    event_time=st.integers(0, 2**40),
    sequence_id=st.integers(0, 1000),
    null_value=st.booleans(),
)


def decoded(data: bytes) -> list[Message]:
    return wire.decode(Entry(0, 0, 0, 1, 0, 0, data))


@given(
    st.lists(MESSAGES, min_size=2, max_size=5),
    st.sampled_from([NONE, LZ4, ZSTD]),
    st.none() | st.integers(0, 9),
)
def test_each_message_stays_what_it_is(messages: list[OutMessage], kind: int, version: int | None) -> None:
    for message in messages:
        if message.null_value:
            message.payload = b""
    batch = wire.encode(messages, producer="p", sequence_id=0, publish_time=1, schema_version=version).data
    if kind != NONE:
        batch = compressed(batch, kind)
    expected = wire.decode(Entry(0, 0, 0, len(messages), 0, 0, batch))
    split = split_batch(batch, 77)
    assert len(split) == len(messages)
    for data, before in zip(split, expected, strict=True):
        (found,) = decoded(data)
        assert not parse(data)[0].HasField("num_messages_in_batch")
        assert len(data) < 1000 or kind == NONE, "it is compressed again"
        before.index, before.offset, before.publish_time = -1, found.offset, 77
        assert found == before


def test_an_encrypted_batch_stays_shut() -> None:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=2,
        encryption_keys=[EncryptionKeys(key="k", value=b"v")],
    )
    data = join(metadata.SerializeToString(), b"secret")
    with pytest.raises(PenstockError) as caught:
        check_splits(NewEntry(data, 2, 1))
    assert caught.value.kind is ErrorKind.BAD_PARAMETER
    check_splits(NewEntry(data, 1, 1))
