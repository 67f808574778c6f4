"""Hand-written metadata: the very bytes that protobuf writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import INT63, SEQUENCE, TEXT, out_messages

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.wire.metadata import (
    batch_metadata,
    message_metadata,
    metadata_of_each,
    parse_metadata,
    plain_metadata,
)
from penstock.wire.pulsar_pb2 import MessageMetadata

VERSION = st.none() | INT63


def common(producer: str, sequence_id: int, publish_time: int, version: int | None) -> MessageMetadata:
    metadata = MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=publish_time)
    if version is not None:
        metadata.schema_version = version.to_bytes(8, "big")
    return metadata


@given(TEXT, SEQUENCE, INT63, VERSION)
def test_plain(producer: str, sequence_id: int, publish_time: int, version: int | None) -> None:
    theirs = common(producer, sequence_id, publish_time, version)
    assert plain_metadata(producer, sequence_id, publish_time, version) == theirs.SerializeToString()


@given(out_messages(), TEXT, SEQUENCE, INT63, VERSION)
def test_alone(
    message: OutMessage, producer: str, sequence_id: int, publish_time: int, version: int | None
) -> None:
    theirs = common(producer, sequence_id, publish_time, version)
    for name, value in (message.properties or {}).items():
        theirs.properties.add(key=name, value=value)
    if message.key is not None:
        theirs.partition_key = message.key
    if message.key_is_base64:
        theirs.partition_key_b64_encoded = True
    if message.ordering_key is not None:
        theirs.ordering_key = message.ordering_key
    if message.event_time:
        theirs.event_time = message.event_time
    if message.deliver_at:
        theirs.deliver_at_time = message.deliver_at
    theirs.replicate_to.extend(message.replicate_to or ())
    if message.null_value:
        theirs.null_value = True
    ours = message_metadata(message, producer, sequence_id, publish_time, version)
    assert ours == theirs.SerializeToString()
    assert parse_metadata(ours) == theirs


@given(st.lists(out_messages(), min_size=1, max_size=5), TEXT, SEQUENCE, INT63, VERSION)
def test_each_of_many_is_as_it_is_alone(
    messages: list[OutMessage], producer: str, first: int, time: int, version: int | None
) -> None:
    for at, message in enumerate(messages):
        message.sequence_id, message.schema_version = max(first - 2, 0) + at, version
    alone = [
        message_metadata(message, producer, message.sequence_id or 0, time, version) for message in messages
    ]
    assert list(metadata_of_each(messages, producer, time)) == alone


@pytest.mark.parametrize("first", [126, 2**14 - 2, 2**21 - 2, 2**35, 2**63 - 3, -2])
def test_sequence_ids_of_many(first: int) -> None:
    messages = [OutMessage(payload=b"", sequence_id=first + at) for at in range(3)]
    for message, metadata in zip(messages, metadata_of_each(messages, "p", 1), strict=True):
        assert metadata == plain_metadata("p", message.sequence_id or 0, 1, None)


@given(
    st.lists(out_messages(), min_size=2, max_size=4) | st.builds(lambda m: [m, m, m], out_messages()),
    TEXT,
    SEQUENCE,
    INT63,
    VERSION,
)
def test_batch(messages: list[OutMessage], producer: str, first: int, time: int, version: int | None) -> None:
    theirs = common(producer, first, time, version)
    theirs.num_messages_in_batch = len(messages)
    theirs.highest_sequence_id = first + 9
    keys = {(m.key, m.key_is_base64) for m in messages}
    if len(keys) == 1 and messages[0].key is not None:
        theirs.partition_key = messages[0].key
        if messages[0].key_is_base64:
            theirs.partition_key_b64_encoded = True
    ordering_keys = {m.ordering_key for m in messages}
    if len(ordering_keys) == 1 and messages[0].ordering_key is not None:
        theirs.ordering_key = messages[0].ordering_key
    theirs.replicate_to.extend(messages[0].replicate_to or ())
    ours = batch_metadata(len(messages), producer, first, first + 9, time, version, messages)
    assert ours == theirs.SerializeToString()


@pytest.mark.parametrize(
    "data",
    [
        b"",  # nothing that is required
        b"\x0a\x01p\x10\x01",  # no publish time
        b"\x0a\x05p",  # cut short
        b"\x0a\x01p\x10\x01\x18\x01\x22\x02\x0a\x00",  # a property without value
        b"\xff\xff\xff",
    ],
)
def test_bytes_that_are_no_metadata(data: bytes) -> None:
    with pytest.raises(PenstockError) as error:
        parse_metadata(data)
    assert error.value.kind is ErrorKind.BAD_ENCODING
