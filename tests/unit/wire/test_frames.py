import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.outcome import refusal

from penstock.engines.subscription.answers import spread
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.wire.contents import excerpt
from penstock.wire.frames import (
    FIELD,
    Frame,
    FrameDecoder,
    ack_set_of,
    broker_part,
    decode,
    encode,
    encode_with_entry,
    has_texts,
    mask_of,
    message_head,
    send_receipt,
)
from penstock.wire.metadata import unsigned
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandMessage,
    CommandPing,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
)

PING = BaseCommand(type=BaseCommand.PING, ping=CommandPing())
FLOW = BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, messagePermits=5))
SEND = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=2))


def test_the_bytes_of_a_command() -> None:
    assert encode(PING).hex(" ") == "00 00 00 09 00 00 00 05 08 12 92 01 00"
    head, entry = encode_with_entry(SEND, b"entry")
    assert head.hex(" ") == "00 00 00 11 00 00 00 08 08 06 32 04 08 01 10 02"
    assert decode(head + entry) == Frame(SEND, b"entry")


def test_what_the_broker_says_of_an_entry() -> None:
    frame = decode(b"".join(encode_with_entry(SEND, b"entry", broker_part(41))))
    assert frame.entry == b"entry"
    assert frame.broker is not None
    assert frame.broker.index == 41


@given(st.lists(st.sampled_from([PING, FLOW, SEND]), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    commands: list[BaseCommand], data: st.DataObject
) -> None:
    stream = b"".join(b"".join(encode_with_entry(c, b"x" * 50)) if c is SEND else encode(c) for c in commands)
    decoder = FrameDecoder()
    found: list[Frame] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        found += decoder.feed(stream[at : at + size])
        at += size
    assert [frame.command for frame in found] == commands
    assert decoder.empty


# Bytes that no entry begins with are metadata of the broker, before it.
ENTRIES = st.binary(max_size=300).filter(lambda entry: not entry.startswith(b"\x0e\x02"))


@given(st.lists(ENTRIES, min_size=1, max_size=5), st.integers(1, 400))
def test_entries_come_out_as_they_went_in_however_they_are_cut(entries: list[bytes], size: int) -> None:
    stream = b"".join(b"".join(encode_with_entry(SEND, entry)) for entry in entries)
    decoder = FrameDecoder()
    found: list[bytes] = []
    for at in range(0, len(stream), size):
        assert decoder.held < size + max(map(len, entries)) + 50
        found += [frame.entry for frame in decoder.feed(stream[at : at + size])]
    assert found == entries
    assert all(type(entry) is bytes for entry in found)
    assert decoder.empty


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error_of_ours(data: bytes) -> None:
    kind = refusal(lambda: list(FrameDecoder(1000).feed(data)))
    assert kind in (None, ErrorKind.TOO_LARGE, ErrorKind.BAD_ENCODING)


@given(st.integers(0, 60), st.integers(0, 255))
def test_any_byte_may_be_wrong(at: int, value: int) -> None:
    stream = bytearray(b"".join((*encode_with_entry(SEND, b"entry", broker_part(1)), encode(FLOW))))
    stream[at % len(stream)] = value
    refusal(lambda: list(FrameDecoder(1000).feed(bytes(stream))))


def test_frames_before_a_bad_one_are_told() -> None:
    feed = FrameDecoder().feed(encode(PING) + b"\x7f\xff\xff\xff")
    assert next(feed).command == PING
    with pytest.raises(PenstockError) as caught:
        next(feed)
    assert caught.value.kind is ErrorKind.TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x04\0\0\0\xff",  # the command is longer than the frame
        b"\0\0\0\x02\0\0",  # no room for the command's size
        b"\0\0\0\x04\0\0\0\0",  # no command at all
        b"\0\0\0\x06\0\0\0\x02\x08\x06",  # SEND without its fields
        b"\0\0\0\x07\0\0\0\x03\x08\xe7\x07",  # a type that nobody knows
        b"\0\0\0\x06\0\0\0\x02\xff\xff",  # no protobuf
    ],
)
def test_what_is_no_command(data: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        list(FrameDecoder().feed(data))
    assert caught.value.kind is ErrorKind.BAD_ENCODING


def test_every_type_has_its_field() -> None:
    for number, name in FIELD.items():
        assert BaseCommand.DESCRIPTOR.fields_by_name[name].number == number


IDS = st.builds(MessageId, st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1), st.integers(-1, 1000))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), IDS, st.integers(0, 2**63 - 1))
def test_receipts_are_those_of_protobuf(producer: int, sequence: int, at: MessageId, highest: int) -> None:
    found = decode(send_receipt(producer, sequence, at, highest)).command.send_receipt
    wanted = CommandSendReceipt(
        producer_id=producer, sequence_id=sequence, message_id=MessageIdData.FromString(at.to_bytes())
    )
    if highest:
        wanted.highest_sequence_id = highest
    assert found == wanted


@given(st.integers(0, 2**64 - 1), IDS, st.integers(0, 1000), st.integers(0, 2**200), st.binary(max_size=50))
def test_messages_are_those_of_protobuf(
    consumer: int, at: MessageId, redeliveries: int, mask: int, entry: bytes
) -> None:
    head = message_head(
        consumer, at, len(entry), redeliveries=redeliveries, ack_set=ack_set_of(mask), epoch=3
    )
    frame = decode(head + entry)
    wanted = CommandMessage(
        consumer_id=consumer,
        message_id=MessageIdData.FromString(at.to_bytes()),
        ack_set=ack_set_of(mask),
        consumer_epoch=3,
    )
    if redeliveries:
        wanted.redelivery_count = redeliveries
    assert frame.command.message == wanted
    assert frame.entry == entry
    assert mask_of(frame.command.message.ack_set) == mask


@given(st.integers(1, 2**20 - 1), st.integers(0, 2**20 - 1))
def test_bits_over_an_excerpt(mask: int, bits: int) -> None:
    places = [at for at in range(20) if mask >> at & 1]
    wanted = sum(1 << place for at, place in enumerate(places) if bits >> at & 1)
    assert spread(bits, mask) == wanted


def test_what_cannot_be_opened_has_no_excerpt() -> None:
    assert excerpt(b"junk", 1) is None


def test_ids_of_a_peer_may_be_any_unsigned_number() -> None:
    largest = 2**64 - 1
    assert unsigned(largest) == unsigned(-1) == b"\xff" * 9 + b"\x01"
    assert unsigned(2**63) == b"\x80" * 9 + b"\x01"
    assert unsigned(300) == b"\xac\x02"


def test_texts_that_are_none_are_seen() -> None:
    """protobuf gives the bytes where a text is no UTF-8, at any depth."""
    good = BaseCommand(type=BaseCommand.LOOKUP)
    lookup = getattr(good, FIELD[BaseCommand.LOOKUP])
    lookup.topic, lookup.request_id = "topic", 1
    subscribe = BaseCommand(type=BaseCommand.SUBSCRIBE)
    subscribe.subscribe.topic, subscribe.subscribe.subscription = "t", "s"
    subscribe.subscribe.subType, subscribe.subscribe.consumer_id, subscribe.subscribe.request_id = 1, 1, 1
    subscribe.subscribe.metadata.add(key="inner", value="value")
    for command, word in ((good, b"topic"), (subscribe, b"inner")):
        field = FIELD[command.type]
        assert has_texts(getattr(command, field))
        broken = BaseCommand.FromString(command.SerializeToString().replace(word, b"\xff" + word[1:]))
        assert not has_texts(getattr(broken, field))
