"""Properties that are read by hand are those that protobuf reads."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.message import OutMessage
from penstock.wire import entry as wire
from penstock.wire.contents import METADATA_AT, open_body, parse
from penstock.wire.messages import read_alone, read_messages
from penstock.wire.plain import read_plain
from penstock.wire.pulsar_pb2 import MessageMetadata


def texts(size: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=("Cs",)), max_size=size)


@given(st.dictionaries(texts(40), texts(140), max_size=4), st.none() | st.integers(0, 9))
@example({"REQUEST_TIMEOUT_MILLIS": "60000"}, None)
@example({"": ""}, None)
@example({"é" * 30: "é" * 31}, 3)
def test_a_message_with_properties(properties: dict[str, str], version: int | None) -> None:
    message = OutMessage(payload=b"p", properties=properties)
    entry = wire.encode(
        [message], producer="p", sequence_id=7, publish_time=1_700_000_000_000, schema_version=version
    )
    assert read_messages(entry.data, 3) == [read_alone(*parse(entry.data), 3)]


def test_those_of_most_messages_are_read_by_hand() -> None:
    message = OutMessage(
        payload=b"p", properties={"REQUEST_TIMEOUT_MILLIS": "60000", "traceparent": "0" * 55}
    )
    entry = wire.encode([message], producer="p", sequence_id=7, publish_time=1, schema_version=None)
    body, until = open_body(entry.data)
    plain = read_plain(body, METADATA_AT, until)
    assert plain is not None
    assert plain[-1] == message.properties


@given(st.binary(max_size=60))
@example(b"\x0a\x01a\x12\x02b")
@example(b"\x12\x01b\x0a\x01a")
@example(b"\x0a\x01a\x12\x01b\x0a\x01c")
@example(b"\x0a\x01\xff\x12\x01b")
@example(b"\x0a\x01a")
@example(b"")
def test_bytes_that_are_no_property_are_left_to_protobuf(pair: bytes) -> None:
    head = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2).SerializeToString()
    metadata = head + b"\x22" + bytes((len(pair),)) + pair
    plain = read_plain(b"\0\0\0\0" + metadata, METADATA_AT, METADATA_AT + len(metadata))
    if plain is not None:
        read = MessageMetadata.FromString(metadata)
        assert plain[-1] == {one.key: one.value for one in read.properties}
