"""Receipts that are read by hand, beside protobuf's reading of the same bytes."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message_id import MessageId
from penstock.wire.frames import FrameDecoder, encode, send_receipt
from penstock.wire.pulsar_pb2 import BaseCommand, CommandSendReceipt, MessageIdData
from penstock.wire.receipts import Receipt, read_receipt, receipt_of

UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 300) | st.just(2**64 - 1)


@st.composite
def commands(draw: st.DrawFn) -> BaseCommand:
    place = MessageIdData(ledgerId=draw(UINT64), entryId=draw(UINT64))
    if draw(st.booleans()):
        place.partition = draw(st.integers(-1, 3))
    body = CommandSendReceipt(producer_id=draw(UINT64), sequence_id=draw(UINT64), message_id=place)
    if draw(st.booleans()):
        body.highest_sequence_id = draw(UINT64)
    return BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=body)


@given(st.lists(commands(), min_size=1, max_size=5))
def test_it_reads_what_protobuf_reads(many: list[BaseCommand]) -> None:
    frames = FrameDecoder(receipts=True).feed(b"".join(map(encode, many)))
    assert [frame.receipt for frame in frames] == [receipt_of(one.send_receipt) for one in many]


@given(commands(), st.data())
def test_what_is_damaged_is_never_read_otherwise(command: BaseCommand, data: st.DataObject) -> None:
    bytes_ = bytearray(command.SerializeToString())
    bytes_[data.draw(st.integers(3, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    found = read_receipt(bytes(bytes_), 0, len(bytes_))
    if found is not None:
        parsed = BaseCommand()
        parsed.ParseFromString(bytes(bytes_))
        assert receipt_of(parsed.send_receipt) == found


def test_the_common_ones_are_read_by_hand() -> None:
    """As a broker of Pulsar 4 sends them: of an entry of one message, and of a batch."""
    alone = bytes.fromhex("08073a16080010001a0508f705100020ffffffffffffffffff01")
    batch = bytes.fromhex("08073a0d080010011a0508f70510012002")
    assert read_receipt(alone, 0, len(alone)) == Receipt(0, 0, 759, 0)
    assert read_receipt(batch, 0, len(batch)) == Receipt(0, 1, 759, 1)


def test_the_partition_of_ours_is_read_by_hand() -> None:
    sent = send_receipt(3, 7, MessageId(759, 5, 2), 0)[8:]  # without the sizes of frame and command
    assert read_receipt(sent, 0, len(sent)) == Receipt(3, 7, 759, 5, 2)


def test_a_peer_that_is_no_broker_has_its_commands_whole() -> None:
    place = MessageIdData(ledgerId=1, entryId=2)
    body = CommandSendReceipt(producer_id=1, sequence_id=2, message_id=place)
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=body)
    (frame,) = FrameDecoder().feed(encode(command))
    assert frame.receipt is None
    assert frame.command == command
