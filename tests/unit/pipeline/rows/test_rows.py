"""Entries as rows, against the decoder of `wire`, which reads message by message through protobuf."""

from base64 import b64decode
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.entries import TIME, batch, lone, pack

from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage
from penstock.model.message_id import MessageId
from penstock.pipeline.rows import columns, rows
from penstock.pipeline.rows import entries as entries_of_blocks
from penstock.pipeline.rows.entries import Frame, read_frames
from penstock.pipeline.rows.place import Place
from penstock.pipeline.rows.rows import decode
from penstock.wire import entry as wire
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.runs import RECORDS, RUN, Frames

PLACE = Place("persistent://public/default/t", 3, 9)
INCLUDE = tuple(columns.INCLUDABLE)


def frames_of(entries: list[tuple[bytes, int]], first: int = 0) -> list[Frame]:
    frames = []
    for number, (data, count) in enumerate(entries):
        frames.append(Frame(first, count, number, data))
        first += count
    return frames


def table(frames: list[Frame], start: int = 0, end: int = 1 << 40) -> list[dict[str, Any]]:
    batches = list(decode(PLACE, frames, start, end, INCLUDE))
    for each in batches:
        each.validate(full=True)
        assert each.schema == columns.arrow_schema(INCLUDE)
    return [row for each in batches for row in each.to_pylist()]


def outcome(frames: list[Frame]) -> tuple[ErrorKind | None, int]:
    """The kind of error, or how many rows there are."""
    try:
        return None, len(table(frames))
    except PenstockError as error:
        return error.kind, 0


def key_of(message: Message) -> bytes | None:
    if message.key is None or not message.key_is_base64:
        return None if message.key is None else message.key.encode()
    try:
        return b64decode(message.key, validate=True)
    except ValueError:
        return message.key.encode()


def expected(frame: Frame, message: Message) -> dict[str, Any]:
    """A row by the slow way."""
    return {
        "key": key_of(message),
        "value": None if message.null_value else message.payload,
        "topic": PLACE.topic,
        "partition": 3,
        "offset": message.offset,
        "timestamp": message.publish_time,
        "timestampType": 0,
        "properties": message.properties,
        "event_time": message.event_time or None,
        "message_id": str(
            MessageId(9, frame.entry_id, 3, message.index, frame.count if message.index >= 0 else 0)
        ),
        "producer_name": message.producer_name,
        "sequence_id": message.sequence_id,
        "schema_version": message.schema_version,
        "ordering_key": message.ordering_key,
        "deliver_at": message.deliver_at or None,
    }


def check(frames: list[Frame]) -> None:
    wanted = []
    for frame in frames:
        entry = Entry(9, frame.entry_id, frame.offset, frame.count, TIME, 0, frame.data)
        wanted += [expected(frame, message) for message in wire.decode(entry)]
    found = table(frames)
    for row in found:
        row["properties"] = dict(row["properties"])
        for name in ("timestamp", "event_time", "deliver_at"):
            if row[name] is not None:
                row[name] = round(row[name].timestamp() * 1000)
    assert found == wanted


texts = st.text(max_size=20)
times = st.integers(1, 4_000_000_000_000)
messages = st.builds(
    OutMessage,
    payload=st.one_of(st.binary(max_size=40), st.integers(100, 20_000).map(bytes)),
    key=st.one_of(st.none(), texts, st.integers(100, 300).map(lambda n: "k" * n)),
    ordering_key=st.one_of(st.none(), st.binary(max_size=5)),
    properties=st.one_of(st.none(), st.dictionaries(texts, texts, max_size=3)),
    event_time=st.one_of(st.just(0), times),
    sequence_id=st.one_of(st.none(), st.integers(0, 2**40)),
    null_value=st.booleans(),
)


@given(
    st.lists(
        st.tuples(st.lists(messages, min_size=1, max_size=8), st.integers(0, 2**40)), min_size=1, max_size=6
    )
)
def test_as_the_wire_decoder_says(entries: list[tuple[list[OutMessage], int]]) -> None:
    encoded = []
    for several, sequence_id in entries:
        entry = wire.encode(
            several,
            producer="p",
            sequence_id=sequence_id,
            publish_time=TIME,
            schema_version=sequence_id % 3 or None,
        )
        encoded.append((entry.data, entry.count))
    check(frames_of(encoded))


def test_properties_where_only_some_messages_have_a_key() -> None:
    """What was found in one step stays when the next step moves some messages only."""
    several = [OutMessage(payload=b"", properties={"a": "b"}, key=key) for key in (None, "k", None, "")]
    entry = wire.encode(several, producer="p", sequence_id=0, publish_time=TIME, schema_version=None)
    check(frames_of([(entry.data, entry.count)]))


def _of(several: list[OutMessage], sequence_id: int) -> tuple[bytes, int]:
    version = sequence_id % 3 or None
    made = wire.encode(
        several,
        producer="pq"[: sequence_id % 2],
        sequence_id=sequence_id,
        publish_time=TIME,
        schema_version=version,
    )
    return made.data, made.count


def _sealed(count: int, payload: bytes) -> tuple[bytes, int]:
    head = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=TIME, num_messages_in_batch=count
    )
    head.encryption_keys.add(key="k", value=b"v")
    return pack(head, payload), count


ids = st.integers(0, 2**64 - 1)
payloads = st.binary(max_size=40)
# As clients of every kind make them, mostly alone.
mixed = st.one_of(
    st.builds(lambda message, number: _of([message], number), messages, st.integers(0, 2**40)),
    st.builds(_of, st.lists(messages, min_size=1, max_size=4), st.integers(0, 2**40)),
    st.builds(_sealed, st.integers(1, 4), payloads),
    st.builds(
        lambda payload, codec, number, **more: (lone(payload, codec, sequence_id=number, **more), 1),
        payloads,
        st.integers(0, 4),
        ids,
        partition_key=st.sampled_from(["", "k", "AAE=", "//8="]),
        partition_key_b64_encoded=st.booleans(),
        deliver_at_time=times,
        null_value=st.booleans(),
        null_partition_key=st.booleans(),
        ordering_key=payloads,
        event_time=times,
        schema_version=st.sampled_from([b"", b"\1", b"\0" * 7 + b"\5", b"\xff" * 8]),
        replicated_from=texts,  # which rows do not show
        num_chunks_from_msg=st.sampled_from([1, 2]),
    ),
    st.builds(
        lambda payload, codec, count: (
            batch([{"payload": payload, "partition_key": "k"}] * count, codec),
            count,
        ),
        payloads,
        st.integers(0, 4),
        st.integers(1, 3),
    ),
    st.builds(lambda payload: (lone(payload)[6:], 1), payloads),  # of an old client, without a checksum
)


@given(st.lists(mixed, min_size=1, max_size=12), st.data())
def test_runs_have_the_rows_of_their_entries(entries: list[tuple[bytes, int]], data: st.DataObject) -> None:
    frames = frames_of(entries)
    check(frames)
    found = [Entry(9, f.entry_id, f.offset, f.count, TIME, 0, f.data) for f in frames]
    cut = data.draw(st.integers(0, len(found)))  # where one read of the server ends
    sent = Frames(9, runs=True)
    stream = sent.block(found[:cut], 1 << 40) + sent.block(found[cut:], 1 << 40)
    start, end = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 40))
    assert table(list(read_frames(BytesIO(stream).read)), start, end) == table(frames, start, end)


def test_a_run_of_which_one_entry_is_broken() -> None:
    data = bytearray(lone(b"x" * 10))
    data[-1] ^= 1
    entries = [Entry(9, n, n, 1, TIME, 0, bytes(data) if n == 7 else lone(b"y")) for n in range(20)]
    stream = Frames(9, runs=True).block(entries, 20)
    with pytest.raises(PenstockError, match="at offset 7") as caught:
        table(list(read_frames(BytesIO(stream).read)))
    assert caught.value.kind is ErrorKind.CHECKSUM


@given(st.sampled_from([RUN, RECORDS]), st.integers(1, 3), st.binary(max_size=100))
def test_any_run_is_read_or_refused(kind: int, count: int, data: bytes) -> None:
    error, rows = outcome([Frame(0, count, 0, data, kind=kind)])
    assert rows == count or error in (ErrorKind.BAD_ENCODING, ErrorKind.CHECKSUM)


@pytest.mark.parametrize("codec", range(5))
def test_every_compression(codec: int) -> None:
    several = [{"payload": b"a" * n, "partition_key": "k"} for n in range(50)]
    check(frames_of([(batch(several, codec), 50), (lone(b"b" * 100, codec), 1)]))


def test_base64_keys_are_decoded() -> None:
    frames = frames_of(
        [
            (
                batch(
                    [{"partition_key": "AAE=", "partition_key_b64_encoded": True}, {"partition_key": "AAE="}]
                ),
                2,
            ),
            (lone(b"", partition_key="//8=", partition_key_b64_encoded=True), 1),
        ]
    )
    check(frames)
    assert [row["key"] for row in table(frames)] == [b"\0\1", b"AAE=", b"\xff\xff"]


def test_keys_that_are_not_there() -> None:
    frames = frames_of(
        [(batch([{"partition_key": ""}, {}, {"partition_key": "x", "null_partition_key": True}]), 3)]
    )
    assert [row["key"] for row in table(frames)] == [b"", None, None]


def test_a_property_named_twice_counts_once() -> None:
    data = lone(b"", properties={"a": "1"})
    again = wire.decode(Entry(0, 0, 0, 1, TIME, 0, data))
    assert again[0].properties == {"a": "1"}
    assert table(frames_of([(data, 1)]))[0]["properties"] == [("a", "1")]


def test_sealed_entries_are_one_row_with_the_payload_as_it_is() -> None:
    head = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=TIME, num_messages_in_batch=4)
    head.encryption_keys.add(key="k", value=b"v")
    head.compression, head.uncompressed_size = 1, 99
    frames = frames_of([(pack(head, b"secret"), 4), (lone(b"chunk", num_chunks_from_msg=2, chunk_id=0), 1)])
    check(frames)
    assert [(row["offset"], row["value"]) for row in table(frames)] == [(0, b"secret"), (4, b"chunk")]


@given(st.integers(0, 60), st.integers(0, 60))
def test_only_the_offsets_asked_for(start: int, end: int) -> None:
    entries = [(batch([{"payload": b"%d" % n}] * n), n) for n in range(1, 10)]
    found = [row["offset"] for row in table(frames_of(entries), start, end)]
    assert found == list(range(start, min(end, 45)))


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_ROWS", 50)
    entries = [(batch([{"payload": b"x"}] * 20), 20)] * 10
    sizes = [each.num_rows for each in decode(PLACE, frames_of(entries), 0, 200)]
    assert sizes == [60, 60, 60, 20]


@pytest.mark.parametrize("together", [False, True])
def test_what_is_opened_at_once_is_bounded_by_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(entries_of_blocks, "UNPACKED_BYTES", 1000)
    values = [bytes([65 + n]) * 300 for n in range(10)]
    packed = [
        (lone(value, 3) if n % 4 else batch([{"payload": value}], 3), 1) for n, value in enumerate(values)
    ]
    frames = frames_of(packed)
    if together:
        entries = [Entry(9, f.entry_id, f.offset, 1, TIME, 0, f.data) for f in frames]
        frames = list(read_frames(BytesIO(Frames(9, runs=True).block(entries, 10)).read))
    else:
        check(frames)
    found = list(decode(PLACE, frames, 0, 10))
    assert [row["value"] for each in found for row in each.to_pylist()] == values
    assert max(each.num_rows for each in found) <= 3
    broken = pack(
        pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, compression=3), b"x"
    )
    with pytest.raises(PenstockError, match="at offset 10"):
        table(frames_of([*packed, (broken, 1)]))


def test_a_broken_checksum() -> None:
    data = bytearray(batch([{"payload": b"x" * 10}]))
    data[-1] ^= 1
    with pytest.raises(PenstockError, match="partition 3, at offset 7") as caught:
        table(frames_of([(bytes(data), 1)], 7))
    assert caught.value.kind is ErrorKind.CHECKSUM


def test_a_batch_that_is_not_what_its_frame_says() -> None:
    with pytest.raises(PenstockError, match="it holds 2 messages, its frame says 3"):
        table([Frame(0, 3, 0, batch([{}, {}]))])


@given(st.data())
def test_broken_batches_are_refused_or_read_but_never_crash(data: st.DataObject) -> None:
    whole = bytearray(
        wire.encode(
            [OutMessage(payload=b"abc", key="k", properties={"a": "b"}, event_time=5)] * 3,
            producer="p",
            sequence_id=0,
            publish_time=TIME,
            schema_version=None,
        ).data[-75:]
    )
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    head = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=TIME, num_messages_in_batch=3)
    kind, count = outcome([Frame(0, 3, 0, pack(head, bytes(whole)))])
    assert count == 3 or kind is ErrorKind.BAD_ENCODING


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    kind, count = outcome([Frame(0, 1, 0, data)])
    assert count == 1 or kind in (ErrorKind.BAD_ENCODING, ErrorKind.CHECKSUM)
