"""Batches: the bytes that protobuf writes, and what must not get through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import SEQUENCE, out_messages
from tests.unit.wire.outcome import refusal

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.wire import batch
from penstock.wire.batch import MESSAGES_MAX, pack, pack_plain, split, split_plain
from penstock.wire.metadata import ENTRIES_MAX
from penstock.wire.pulsar_pb2 import SingleMessageMetadata


def framed(single: SingleMessageMetadata, payload: bytes) -> bytes:
    metadata = single.SerializeToString()
    return len(metadata).to_bytes(4, "big") + metadata + payload


def refused(payload: bytes, count: int) -> str:
    with pytest.raises(PenstockError) as error:
        split(payload, count)
    assert error.value.kind is ErrorKind.BAD_ENCODING
    return error.value.message


SIZES = st.sampled_from([0, 1, 2, 5, 127, 128, 129, 300])


@given(st.lists(SIZES, min_size=1, max_size=12))
def test_plain(sizes: list[int]) -> None:
    payloads = [bytes([n]) * size for n, size in enumerate(sizes)]
    theirs = b"".join(framed(SingleMessageMetadata(payload_size=len(p)), p) for p in payloads)
    assert pack_plain(payloads) == theirs
    assert split(theirs, len(payloads)) == [(None, payload) for payload in payloads]


@given(
    st.lists(SIZES, min_size=1, max_size=12)
    | st.tuples(SIZES, st.integers(1, 9)).map(lambda of: [of[0]] * of[1])
)
def test_texts_are_packed_as_their_bytes(sizes: list[int]) -> None:
    texts = [chr(n) * size for n, size in enumerate(sizes)]
    assert pack_plain(texts) == pack_plain([text.encode() for text in texts])


@given(st.lists(out_messages(), min_size=1, max_size=6), SEQUENCE)
def test_any_messages(messages: list[OutMessage], first: int) -> None:
    ids = [first + 3 * n for n in range(len(messages))]
    singles = []
    for message, sequence_id in zip(messages, ids, strict=True):
        single = SingleMessageMetadata(payload_size=len(message.payload), sequence_id=sequence_id)
        for name, value in (message.properties or {}).items():
            single.properties.add(key=name, value=value)
        if message.key is not None:
            single.partition_key = message.key
        if message.key_is_base64:
            single.partition_key_b64_encoded = True
        if message.ordering_key is not None:
            single.ordering_key = message.ordering_key
        if message.event_time:
            single.event_time = message.event_time
        if message.null_value:
            single.null_value = True
        singles.append(single)
    theirs = b"".join(framed(s, m.payload) for s, m in zip(singles, messages, strict=True))
    assert pack(messages, ids) == theirs
    assert split(theirs, len(messages)) == [(s, m.payload) for s, m in zip(singles, messages, strict=True)]


def test_keyed_and_plain_messages_in_turn() -> None:
    keyed = SingleMessageMetadata(payload_size=1, partition_key="k")
    plain = SingleMessageMetadata(payload_size=1)
    order = [keyed, keyed, plain, plain, keyed, plain]
    payload = b"".join(framed(single, b"%d" % n) for n, single in enumerate(order))
    found = split(payload, len(order))
    assert [body for _, body in found] == [b"%d" % n for n in range(len(order))]
    assert [single for single, _ in found] == [s if s is keyed else None for s in order]


def test_a_size_written_longer_than_need_be() -> None:
    assert split(b"\0\0\0\x03\x18\x81\x00x" * 2, 2) == [(None, b"x"), (None, b"x")]


def test_what_follows_the_last_message_is_passed_over() -> None:
    assert split(pack_plain([b"a", b"b"]) + b"rest", 2) == [(None, b"a"), (None, b"b")]


@given(st.lists(SIZES, min_size=2, max_size=5), st.booleans())
def test_every_cut_is_noticed(sizes: list[int], keyed: bool) -> None:
    messages = [OutMessage(payload=bytes(size), key="k" if keyed else None) for size in sizes]
    whole = pack(messages, range(len(sizes))) if keyed else pack_plain([m.payload for m in messages])
    for cut in range(len(whole)):
        refused(whole[:cut], len(sizes))
    refused(whole, len(sizes) + 1)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**63, MESSAGES_MAX + 1, 0, -1])
def test_counts_beyond_the_bound(count: int) -> None:
    assert "messages" in refused(pack_plain([b"a"]), count)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\0\0\0" + b"xx",  # no metadata
        b"\0\0\0\x02\x08\x01",  # no payload size
        b"\0\0\0\x0b\x18" + b"\xff" * 9 + b"\x01",  # a payload of size -1
        b"\0\0\0\x06\x18\xff\xff\xff\xff\x0f",  # the same in 32 bits
        b"\0\0\0\x06\x18\xff\xff\xff\xff\x07",  # a payload of 2 GiB
        b"\0\0\0\x03\x18\x80\x80xxxxxx",  # a size cut short by the metadata's end
        b"\0\0\0\x03\x18\x80\x80",  # and by the batch's
        b"\xff\xff\xff\xff\x18\x00",
        b"\0\0\0\x04\x0a\x05ab" + b"xxxxx",  # a property cut short
        b"\0\0\0\x06\x0a\x02\x0a\x00\x18\x00",  # a property without value
    ],
)
def test_malformed(payload: bytes) -> None:
    refused(payload, 1)


def test_what_it_remembers_is_bounded() -> None:
    for n in range(2 * ENTRIES_MAX):
        payload = pack_plain([bytes(n % ENTRIES_MAX + 1)] * 2)
        assert len(split(payload, 2)) == 2
        assert len(batch._SIZE_OF_HEAD) <= ENTRIES_MAX


@given(st.binary(max_size=80), st.integers(1, 5))
def test_any_bytes_are_a_batch_or_refused(payload: bytes, count: int) -> None:
    assert refusal(lambda: split(payload, count)) in (None, ErrorKind.BAD_ENCODING)


@given(
    st.lists(SIZES, min_size=1, max_size=12), st.integers(-3, 3), st.integers(-1, 1), st.binary(max_size=3)
)
def test_plain_payloads_alone(sizes: list[int], cut: int, more: int, junk: bytes) -> None:
    """`split_plain` reads what `split` does, and nothing where that raises."""
    payloads = [bytes([n]) * size for n, size in enumerate(sizes)]
    data = pack_plain(payloads) + junk
    data = data[: len(data) + cut] if cut < 0 else data
    count = len(payloads) + more
    try:
        expected = [payload for single, payload in split(data, count) if single is None]
    except PenstockError:
        expected = []
    found = split_plain(data, count)
    assert (found or []) == (expected if len(expected) == count else [])


def test_what_is_more_than_a_payload_is_not_plain() -> None:
    message = OutMessage(payload=b"x", key="k")
    assert split_plain(pack_plain([b"x"]) + pack([message], [0]), 2) is None
