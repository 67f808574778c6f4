"""Entries: what goes in comes out, official clients' entries are understood, and nothing else gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.messages import INT63, PAYLOAD, SEQUENCE, TEXT, out_messages
from tests.unit.wire.outcome import refusal

from penstock.engines.core.ports import Batches
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind
from penstock.model.message import Message, OutMessage
from penstock.wire import entry as wire
from penstock.wire.batch import MESSAGES_MAX, pack_plain
from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX, compress
from penstock.wire.contents import compressed, parse, seal
from penstock.wire.entry import admit
from penstock.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, MessageMetadata, SingleMessageMetadata

COMPRESSED = [LZ4, ZLIB, ZSTD, SNAPPY]


def stored(new: NewEntry, offset: int = 0) -> Entry:
    return Entry(
        ledger=1,
        entry_id=0,
        offset=offset,
        count=new.count,
        publish_time=new.publish_time,
        deliver_at=new.deliver_at,
        data=new.data,
    )


def raw(data: bytes, count: int = 1) -> Entry:
    return Entry(ledger=1, entry_id=0, offset=0, count=count, publish_time=0, deliver_at=0, data=data)


def entry_of(metadata: MessageMetadata, payload: bytes) -> bytes:
    body = metadata.SerializePartialToString()
    return seal(len(body).to_bytes(4, "big") + body + payload)


def metadata(**fields: object) -> MessageMetadata:
    found = MessageMetadata(producer_name="p", sequence_id=5, publish_time=9)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def expected(message: OutMessage, index: int, offset: int, **common: object) -> Message:
    return Message(
        payload=message.payload,
        index=index,
        offset=offset,
        key=message.key,
        key_is_base64=message.key_is_base64,
        ordering_key=message.ordering_key,
        properties=message.properties or {},
        event_time=message.event_time,
        null_value=message.null_value,
        **common,  # type: ignore[arg-type]
    )


def encode(messages: list[OutMessage], **changes: object) -> NewEntry:
    arguments = {"producer": "p", "sequence_id": 5, "publish_time": 9, "schema_version": None} | changes
    return wire.encode(messages, **arguments)  # type: ignore[arg-type]


def plain(payloads: list[bytes], **changes: object) -> NewEntry:
    arguments = {"producer": "p", "sequence_id": 5, "publish_time": 9, "schema_version": None} | changes
    return wire.encode_plain(payloads, **arguments)  # type: ignore[arg-type]


def test_it_is_the_cores_port() -> None:
    port: Batches = wire
    assert port is wire


def test_the_bytes_of_the_smallest_entry() -> None:
    body = bytes.fromhex("00000007 0a0170 1005 1809".replace(" ", "")) + b"hi"
    assert plain([b"hi"]).data == seal(body)
    assert parse(body) == parse(seal(body))


# --- round trips -----------------------------------------------------------------------------------


@given(out_messages(), TEXT, SEQUENCE, INT63, st.none() | INT63, st.integers(0, 99))
def test_alone(
    message: OutMessage, producer: str, sequence_id: int, time: int, version: int | None, offset: int
) -> None:
    new = wire.encode(
        [message], producer=producer, sequence_id=sequence_id, publish_time=time, schema_version=version
    )
    own = sequence_id if message.sequence_id is None else message.sequence_id
    assert (new.count, new.publish_time, new.deliver_at) == (1, time, message.deliver_at)
    assert (new.producer, new.sequence_id) == (producer, own)
    wanted = expected(
        message,
        -1,
        offset,
        publish_time=time,
        deliver_at=message.deliver_at,
        producer_name=producer,
        sequence_id=own,
        schema_version=version,
        replicate_to=message.replicate_to,
    )
    assert wire.decode(stored(new, offset)) == [wanted]
    assert admit(new.data) == new


@given(
    st.lists(out_messages(delayed=False), min_size=2, max_size=6),
    TEXT,
    SEQUENCE,
    INT63,
    st.none() | INT63,
    st.integers(0, 99),
)
def test_batch(
    messages: list[OutMessage], producer: str, first: int, time: int, version: int | None, offset: int
) -> None:
    new = wire.encode(
        messages, producer=producer, sequence_id=first, publish_time=time, schema_version=version
    )
    ids = [first + n if m.sequence_id is None else m.sequence_id for n, m in enumerate(messages)]
    assert (new.count, new.sequence_id, new.producer) == (len(messages), max(ids), producer)
    assert wire.decode(stored(new, offset)) == [
        expected(
            message,
            index,
            offset + index,
            publish_time=time,
            producer_name=producer,
            sequence_id=ids[index],
            schema_version=version,
            replicate_to=messages[0].replicate_to,
        )
        for index, message in enumerate(messages)
    ]
    assert admit(new.data) == new


@given(st.lists(out_messages(), min_size=1, max_size=4), TEXT, SEQUENCE, INT63, st.none() | INT63)
def test_each_of_many_is_as_it_is_alone(
    messages: list[OutMessage], producer: str, first: int, time: int, version: int | None
) -> None:
    alone = []
    for at, message in enumerate(messages, first):
        message.sequence_id, message.schema_version = at, version
        alone.append(
            encode([message], producer=producer, sequence_id=0, publish_time=time, schema_version=version)
        )
    assert wire.encode_each(messages, producer=producer, publish_time=time) == alone


@given(st.lists(PAYLOAD, min_size=1, max_size=6), SEQUENCE, st.none() | INT63)
def test_plain_says_the_same_as_encode(payloads: list[bytes], first: int, version: int | None) -> None:
    new = plain(payloads, sequence_id=first, schema_version=version)
    same = encode([OutMessage(payload=p) for p in payloads], sequence_id=first, schema_version=version)
    assert wire.decode(stored(new)) == wire.decode(stored(same))
    assert wire.keys(stored(new)) == wire.keys(stored(same))
    assert admit(new.data) == new
    assert (new.count, new.sequence_id) == (same.count, same.sequence_id)


@given(
    st.lists(PAYLOAD, min_size=1, max_size=6), TEXT, SEQUENCE | st.just(2**63 - 7), INT63, st.none() | INT63
)
def test_an_entry_of_each_payload_is_that_of_its_message(
    payloads: list[bytes], producer: str, first: int, time: int, version: int | None
) -> None:
    run = wire.encode_plain_each(
        payloads, producer=producer, sequence_id=first, publish_time=time, schema_version=version
    )
    alone = [
        plain([payload], producer=producer, sequence_id=at, publish_time=time, schema_version=version)
        for at, payload in enumerate(payloads, first)
    ]
    for one in alone:
        one.producer, one.sequence_id = "", -1
    assert list(run) == [run[at] for at in range(len(run))] == alone
    assert list(run[1:]) == alone[1:]
    assert run.size_bytes == sum(len(one.data) for one in alone)


@pytest.mark.parametrize("kind", [NONE, *COMPRESSED])
@given(st.lists(out_messages(delayed=False), min_size=1, max_size=4))
def test_compressed(kind: int, messages: list[OutMessage]) -> None:
    new = encode(messages)
    data = compressed(new.data, kind)
    entry = raw(data, new.count)
    assert wire.decode(entry) == wire.decode(stored(new))
    assert wire.keys(entry) == wire.keys(stored(new))
    again = admit(data)
    assert (again.count, again.sequence_id, again.data) == (new.count, new.sequence_id, data)


def test_sequence_ids_out_of_order() -> None:
    new = encode([OutMessage(payload=b"", sequence_id=n) for n in (7, 9, 8)])
    assert new.sequence_id == admit(new.data).sequence_id == 9
    assert [m.sequence_id for m in wire.decode(stored(new))] == [7, 9, 8]


# --- what official clients send --------------------------------------------------------------------


def test_a_batch_of_one() -> None:
    data = entry_of(metadata(num_messages_in_batch=1), pack_plain([b"a"]))
    (message,) = wire.decode(raw(data))
    assert (message.index, message.payload, message.sequence_id) == (0, b"a", 5)
    assert admit(data).count == 1


def test_a_keyed_message_without_sequence_id_counts_from_the_batchs() -> None:
    single = SingleMessageMetadata(payload_size=1, partition_key="").SerializeToString()
    framed = len(single).to_bytes(4, "big") + single + b"x"
    entry = raw(entry_of(metadata(num_messages_in_batch=2), framed * 2), 2)
    assert [(m.key, m.sequence_id) for m in wire.decode(entry)] == [("", 5), ("", 6)]
    assert wire.keys(entry) == [b"", b""]


def test_without_checksum() -> None:
    new = encode([OutMessage(payload=b"a")])
    bare = new.data[6:]
    assert wire.decode(raw(bare)) == wire.decode(stored(new))
    assert admit(bare) == new


def test_a_single_compressed_message_of_no_bytes() -> None:
    data = entry_of(metadata(compression=ZSTD, uncompressed_size=0), compress(ZSTD, b""))
    assert wire.decode(raw(data))[0].payload == b""


def test_an_encrypted_batch_stays_closed() -> None:
    sealed = metadata(num_messages_in_batch=3, compression=LZ4, uncompressed_size=100, partition_key="k")
    sealed.encryption_keys.add(key="k", value=b"v")
    data = entry_of(sealed, b"secret")
    assert admit(data).count == 3
    (message,) = wire.decode(raw(data, 3))
    assert (message.payload, message.index, message.key) == (b"secret", -1, "k")
    assert wire.keys(raw(data, 3)) == [b"k"] * 3


@pytest.mark.parametrize(("chunk", "sequence_id"), [(0, -1), (1, -1), (2, 5)])
def test_chunks(chunk: int, sequence_id: int) -> None:
    data = entry_of(
        metadata(
            uuid="u", num_chunks_from_msg=3, chunk_id=chunk, total_chunk_msg_size=30, compression=ZLIB,
            uncompressed_size=30,
        ),
        b"part",
    )  # fmt: skip
    new = admit(data)
    assert (new.count, new.sequence_id) == (1, sequence_id)
    assert wire.decode(raw(data))[0].payload == b"part"


def test_a_message_of_one_chunk_is_a_message() -> None:
    data = entry_of(
        metadata(num_chunks_from_msg=1, chunk_id=0, compression=ZLIB, uncompressed_size=5),
        compress(ZLIB, b"whole"),
    )
    assert wire.decode(raw(data))[0].payload == b"whole"
    assert admit(data).sequence_id == 5


def test_null_keys_and_java_longs() -> None:
    data = entry_of(
        metadata(partition_key="", null_partition_key=True, sequence_id=2**64 - 1, event_time=2**64 - 5),
        b"",
    )
    (message,) = wire.decode(raw(data))
    assert (message.key, message.sequence_id, message.event_time) == (None, -1, -5)


def test_a_delivery_time_before_1970_is_none() -> None:
    data = entry_of(metadata(deliver_at_time=-1), b"")
    assert admit(data).deliver_at == wire.decode(raw(data))[0].deliver_at == 0


def test_schema_versions_of_any_length() -> None:
    for data, version in ((b"", None), (b"\x07", 7), (bytes(8), 0)):
        entry = raw(entry_of(metadata(schema_version=data), b""))
        assert wire.decode(entry)[0].schema_version == version


# --- keys ------------------------------------------------------------------------------------------


def test_keys_of_each_message() -> None:
    messages = [
        OutMessage(payload=b"", key="a"),
        OutMessage(payload=b"", key="AP8=", key_is_base64=True),
        OutMessage(payload=b"", key="a", ordering_key=b"o"),
        OutMessage(payload=b""),
        OutMessage(payload=b"", sequence_id=77),
    ]
    wanted = [b"a", b"\x00\xff", b"o", b"p-8", b"p-77"]
    assert wire.keys(stored(encode(messages))) == wanted
    for key, message in zip((b"a", b"\x00\xff", b"o", b"p-5", b"p-77"), messages, strict=True):
        assert wire.keys(stored(encode([message]))) == [key]


def test_keys_of_what_cannot_be_opened() -> None:
    assert wire.keys(raw(b"garbage", 3)) == [b""] * 3
    cut = entry_of(metadata(num_messages_in_batch=2, partition_key="k"), b"\0\0\0")
    assert wire.keys(raw(cut, 2)) == [b"k", b"k"]
    wrong = entry_of(metadata(num_messages_in_batch=2, compression=LZ4, uncompressed_size=50), b"x")
    assert wire.keys(raw(wrong, 2)) == [b"p-5", b"p-5"]


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        b"\0\0\0\x08short",
        seal(b""),
        seal(b"\xff\xff\xff\xff"),
        entry_of(MessageMetadata(producer_name="p", sequence_id=1), b""),
        entry_of(MessageMetadata.FromString(b"\x0a\x01\xff\x10\x01\x18\x01"), b""),  # a name not of UTF-8
        entry_of(metadata(schema_version=bytes(9)), b""),
    ],
)
def test_malformed_metadata(data: bytes) -> None:
    assert refusal(lambda: admit(data)) is ErrorKind.BAD_ENCODING
    assert refusal(lambda: wire.decode(raw(data))) is ErrorKind.BAD_ENCODING
    assert len(wire.keys(raw(data, 2))) == 2


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 2, 10**6, 2**31 - 1])
def test_claims_of_more_messages_than_can_be(count: int) -> None:
    data = entry_of(metadata(num_messages_in_batch=count), pack_plain([b""]))
    assert refusal(lambda: admit(data)) is ErrorKind.BAD_ENCODING
    assert refusal(lambda: wire.decode(raw(data))) is ErrorKind.BAD_ENCODING


def test_claims_of_more_bytes_than_can_be() -> None:
    for size in (UNCOMPRESSED_BYTES_MAX + 1, 2**32 - 1):
        data = entry_of(
            metadata(num_messages_in_batch=1, compression=ZSTD, uncompressed_size=size), compress(ZSTD, b"")
        )
        assert refusal(lambda data=data: admit(data)) is ErrorKind.BAD_ENCODING  # type: ignore[misc]
        assert refusal(lambda data=data: wire.decode(raw(data))) is ErrorKind.BAD_ENCODING  # type: ignore[misc]


def test_a_publish_time_beyond_63_bits() -> None:
    assert refusal(lambda: admit(entry_of(metadata(publish_time=2**63), b""))) is ErrorKind.BAD_ENCODING


@pytest.mark.parametrize(
    "message",
    [
        OutMessage(payload=b"", key="\ud800"),
        OutMessage(payload=b"", properties={"\ud800": ""}),
        OutMessage(payload=b"", properties={"a": "\udfff"}),
        OutMessage(payload=b"", event_time=2**63),
        OutMessage(payload=b"", sequence_id=2**63),
        OutMessage(payload=b"", replicate_to=["\ud800"]),
    ],
)
def test_messages_without_bytes(message: OutMessage) -> None:
    assert refusal(lambda: encode([message])) is ErrorKind.BAD_ENCODING
    if message.replicate_to is None:
        assert refusal(lambda: encode([OutMessage(payload=b""), message])) is ErrorKind.BAD_ENCODING


def test_a_delivery_time_without_bytes() -> None:
    assert refusal(lambda: encode([OutMessage(payload=b"", deliver_at=2**63)])) is ErrorKind.BAD_ENCODING


def test_more_messages_at_once_than_are_taken() -> None:
    payloads = [b""] * (MESSAGES_MAX + 1)
    assert refusal(lambda: plain(payloads)) is ErrorKind.TOO_LARGE
    assert refusal(lambda: encode([OutMessage(payload=b"")] * len(payloads))) is ErrorKind.TOO_LARGE
    most = plain(payloads[1:])
    assert admit(most.data).count == len(wire.decode(stored(most))) == MESSAGES_MAX


# --- damage ----------------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    """Whatever the bytes are: a value, or an error of ours."""
    for call in (lambda: admit(data), lambda: wire.decode(raw(data))):
        assert refusal(call) in (None, ErrorKind.BAD_ENCODING, ErrorKind.CHECKSUM)
    assert len(wire.keys(raw(data, 3))) == 3


@given(st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    survives(data)
    survives(seal(data))
    survives(seal(len(data).to_bytes(4, "big") + data))
    survives(entry_of(metadata(num_messages_in_batch=2), data))


@given(st.lists(out_messages(delayed=False), min_size=1, max_size=3), st.data())
def test_a_cut_or_flipped_entry_is_refused(messages: list[OutMessage], data: st.DataObject) -> None:
    whole = encode(messages).data
    cut = whole[: data.draw(st.integers(6, len(whole) - 1))]
    assert refusal(lambda: wire.decode(raw(cut))) in (ErrorKind.BAD_ENCODING, ErrorKind.CHECKSUM)
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(2, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    assert refusal(lambda: wire.decode(raw(bytes(flipped)))) is ErrorKind.CHECKSUM
    assert refusal(lambda: admit(bytes(flipped))) is ErrorKind.CHECKSUM


@pytest.mark.parametrize("kind", [NONE, *COMPRESSED])
@given(st.lists(out_messages(delayed=False), min_size=1, max_size=3), st.data())
def test_damage_under_a_right_checksum(kind: int, messages: list[OutMessage], data: st.DataObject) -> None:
    body = bytearray(compressed(encode(messages).data, kind)[6:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    survives(seal(bytes(body)))
    survives(seal(bytes(body[: data.draw(st.integers(0, len(body)))])))
