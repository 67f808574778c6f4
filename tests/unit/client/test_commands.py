"""Commands that are written by hand, as protobuf reads them."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.session import commands
from penstock.wire.frames import FrameDecoder
from penstock.wire.pulsar_pb2 import BaseCommand, CommandSend

INT63 = st.integers(0, 2**63 - 1) | st.integers(0, 300)


INT64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)


@given(
    st.integers(0, 2**31),
    INT63,
    INT63,
    st.integers(1, 2**31 - 1),
    st.binary(max_size=300),
    st.booleans(),
    st.none() | st.tuples(INT64, INT64),
)
def test_what_goes_before_an_entry(
    producer_id: int,
    sequence_id: int,
    highest: int,
    count: int,
    entry: bytes,
    chunk: bool,
    transaction: tuple[int, int] | None,
) -> None:
    head = commands.send(
        producer_id, sequence_id, highest, count, entry, chunk=chunk, transaction=transaction
    )
    (frame,) = FrameDecoder().feed(head + entry)
    expected = CommandSend(producer_id=producer_id, sequence_id=sequence_id)
    if count != 1:
        expected.num_messages, expected.highest_sequence_id = count, highest
    if chunk:
        expected.is_chunk = True
    if transaction is not None:
        expected.txnid_most_bits, expected.txnid_least_bits = transaction
    assert frame.command == BaseCommand(type=BaseCommand.SEND, send=expected)
    assert frame.entry == entry
