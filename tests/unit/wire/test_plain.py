"""Metadata read by hand says what protobuf says, or nothing."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.wire.messages import INT63, TEXT

from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.wire import entry as wire
from penstock.wire import plain
from penstock.wire.contents import METADATA_AT, is_sealed, open_body, seal
from penstock.wire.messages import read_messages
from penstock.wire.metadata import ENTRIES_MAX, parse_metadata
from penstock.wire.plain import PlainMetadata, plain_part, read_plain
from penstock.wire.pulsar_pb2 import LZ4, MessageMetadata

PLAIN = {"producer_name", "sequence_id", "publish_time", "uncompressed_size", "num_messages_in_batch"} | {
    "schema_version",
    "highest_sequence_id",
    "properties",
}
UINT64 = st.integers(0, 2**64 - 1)


@st.composite
def some_metadata(draw: st.DrawFn) -> MessageMetadata:
    found = MessageMetadata(
        producer_name=draw(TEXT | st.text(min_size=100, max_size=200)),
        sequence_id=draw(st.integers(0, 300) | UINT64),
        publish_time=draw(st.integers(1_600_000_000_000, 1_900_000_000_000) | UINT64),
    )
    if draw(st.booleans()):
        found.num_messages_in_batch = draw(st.integers(-1, 3) | st.integers(0, 2**31 - 1))
    if draw(st.booleans()):
        found.uncompressed_size = draw(st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        found.schema_version = draw(st.binary(min_size=8, max_size=8) | st.binary(max_size=8))
    if draw(st.booleans()):
        found.highest_sequence_id = draw(UINT64)
    match draw(st.integers(0, 12)):  # what is not plain, in some
        case 0:
            found.partition_key = draw(TEXT)
        case 1 | 8 | 9:
            for _ in range(draw(st.integers(1, 3))):
                found.properties.add(key=draw(TEXT), value=draw(TEXT | st.text(min_size=100, max_size=200)))
        case 2:
            found.compression = LZ4
        case 3:
            found.event_time = draw(INT63)
        case 4:
            found.null_value = True
        case 5:
            found.encryption_keys.add(key="k", value=b"v")
        case 6:
            found.num_chunks_from_msg = 2
        case 7:
            found.deliver_at_time = draw(INT63)
    return found


def check(data: bytes, before: bytes, after: bytes) -> PlainMetadata | None:
    """What was read of `data` that stands between other bytes, compared with protobuf's reading."""
    found = read_plain(before + data + after, len(before), len(before) + len(data))
    if found is not None:
        metadata = parse_metadata(data)
        assert {field.name for field, _ in metadata.ListFields()} <= PLAIN
        assert found == plain_part(metadata)
    return found


@given(some_metadata(), st.binary(max_size=4), st.binary(max_size=20))
def test_it_says_what_protobuf_says(metadata: MessageMetadata, before: bytes, after: bytes) -> None:
    check(metadata.SerializeToString(), before, after)


@given(some_metadata(), st.data())
def test_bytes_that_were_changed_are_read_alike_or_left_to_protobuf(
    metadata: MessageMetadata, data: st.DataObject
) -> None:
    broken = bytearray(metadata.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(broken[: data.draw(st.integers(0, len(broken)))])
    for one in (bytes(broken), cut):
        if read_plain(one, 0, len(one)) is not None:
            check(one, b"", b"")


@given(
    TEXT,
    st.integers(0, 2**62),
    st.integers(1_600_000_000_000, 1_900_000_000_000),
    st.none() | st.integers(0, 2**62),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3),
)
@example("p", 5, 1_700_000_000_000, None, [b"x"])
def test_what_we_write_is_read_by_hand(
    producer: str, sequence_id: int, publish_time: int, version: int | None, payloads: list[bytes]
) -> None:
    new = wire.encode_plain(
        payloads,
        producer=producer,
        sequence_id=sequence_id,
        publish_time=publish_time,
        schema_version=version,
    )
    size = int.from_bytes(new.data[6:10], "big")
    count = len(payloads) if len(payloads) > 1 else 0
    assert check(new.data[10 : 10 + size], new.data[:10], new.data[10 + size :]) == (
        producer,
        sequence_id,
        publish_time,
        count,
        version,
        None,
    )
    messages = wire.decode(Entry(1, 2, 7, new.count, publish_time, 0, new.data))
    assert [m.payload for m in messages] == payloads
    assert [m.offset for m in messages] == [7 + n for n in range(len(payloads))]
    assert [m.index for m in messages] == ([-1] if len(payloads) == 1 else list(range(len(payloads))))
    assert {(m.producer_name, m.publish_time, m.schema_version) for m in messages} == {
        (producer, publish_time, version)
    }


@given(some_metadata())
def test_a_batch_that_claims_more_than_there_is_cannot_be_read(metadata: MessageMetadata) -> None:
    metadata.num_messages_in_batch = 2
    if is_sealed(metadata):
        return
    body = metadata.SerializeToString()
    with pytest.raises(PenstockError):
        read_messages(seal(len(body).to_bytes(4, "big") + body + b"\0\0\0\2\x18\1x"), 0)


def test_neighbours_of_one_producer_are_read_alike_and_what_is_remembered_is_bounded() -> None:
    for number in range(ENTRIES_MAX + 100):
        time, timeout = 1_700_000_000_000 + number, str(number % 3)
        messages = [
            OutMessage(
                payload=b"", sequence_id=n, properties={REQUEST_TIMEOUT_PROPERTY: timeout} if n else None
            )
            for n in range(2)
        ]
        for n, new in enumerate(wire.encode_each(messages, producer="p", publish_time=time)):
            body, at = open_body(new.data)
            found = read_plain(body, METADATA_AT, at)
            assert found == plain_part(parse_metadata(body[METADATA_AT:at]))
            assert found is not None
            assert found[1:3] == (n, time)
        assert len(plain._RESTS) <= ENTRIES_MAX
