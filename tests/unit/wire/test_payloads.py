"""Payloads alone: the same as decoding gives, and never an error."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.entry import Entry
from penstock.model.message import OutMessage
from penstock.wire import entry as wire
from penstock.wire.batch import MESSAGES_MAX
from penstock.wire.contents import compressed, seal
from penstock.wire.payloads import LazyEntry
from penstock.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, MessageMetadata

MESSAGES = st.lists(
    st.builds(
        OutMessage,
        payload=st.binary(max_size=300),
        key=st.none() | st.text(max_size=5) | st.just("k" * 200),
        properties=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
        event_time=st.integers(0, 2**40),
        ordering_key=st.none() | st.binary(max_size=3),
        null_value=st.booleans(),
    ),
    min_size=1,
    max_size=10,
)


def entry(data: bytes, count: int = 1) -> Entry:
    return Entry(0, 0, 0, count, 1, 0, data)


def batch(payload: bytes, count: int, **fields: object) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count, **fields
    ).SerializeToString()
    return seal(struct.pack(">I", len(metadata)) + metadata + payload)


@given(messages=MESSAGES, kind=st.sampled_from([NONE, LZ4, ZLIB, ZSTD, SNAPPY]))
def test_they_are_what_decoding_gives(messages: list[OutMessage], kind: int) -> None:
    made = wire.encode(messages, producer="p", sequence_id=0, publish_time=1, schema_version=None)
    data = made.data if kind == NONE else compressed(made.data, kind)
    decoded = [message.payload for message in wire.decode(entry(data, made.count))]
    assert LazyEntry(data).payloads() == decoded == [message.payload for message in messages]
    assert kind != NONE or LazyEntry(data).unfolds_to == 0


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=10))
def test_plain_ones_too(payloads: list[bytes]) -> None:
    made = wire.encode_plain(payloads, producer="p", sequence_id=0, publish_time=1, schema_version=3)
    assert LazyEntry(made.data).payloads() == payloads


def test_what_only_the_receiver_can_open_is_given_as_it_is() -> None:
    sealed = batch(b"?" * 20, 2, encryption_keys=[{"key": "k", "value": b"v"}], compression=ZLIB)
    assert LazyEntry(sealed).payloads() == [b"?" * 20]
    assert LazyEntry(sealed).unfolds_to == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        seal(b"junk")[:-1],
        batch(b"", 1),
        batch(b"\0\0\0\2\x18\5abcde", 2),  # fewer than it claims
        batch(b"\0\0\0\2\x18\6abcde", 1),  # a payload cut short
        batch(b"\0\0\0\2\x18\6abcde", 0),
        batch(b"\0\0\0\2\x18\6abcde", MESSAGES_MAX + 1),
        batch(b"\0\0\0\1\x18\5abcde", 1),  # the metadata ends before its size
        batch(b"\0\0\0\2\x28\5abcde", 1),  # no size at all
        batch(b"\0\0\0\4\x0a\xff\x18\5abcde", 1),
        batch(b"\0\0\0\xff\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", 1),
        batch(b"not zlib", 1, compression=ZLIB, uncompressed_size=9),
    ],
)
def test_what_nobody_can_open_is_its_own_bytes(data: bytes) -> None:
    assert LazyEntry(data).payloads() == [data]


@given(payload=st.binary(max_size=60), count=st.integers(-1, 5))
def test_any_batch_gives_something(payload: bytes, count: int) -> None:
    data = batch(payload, count)
    assert sum(map(len, LazyEntry(data).payloads())) <= len(data)
