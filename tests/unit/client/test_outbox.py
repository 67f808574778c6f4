"""A producer's session: messages in, frames out, receipts in."""

from typing import Any

import pytest

from penstock.client.enums import BatchingType, CompressionType
from penstock.client.errors import IncompatibleSchema, InvalidMessage, MessageTooBig, NotConnected, Timeout
from penstock.client.schema import Schema, StringSchema
from penstock.client.session.batch import Sending
from penstock.client.session.outbox import Outbox
from penstock.model.message import OutMessage
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire import entry as wire
from penstock.wire.contents import parse

from .broker import frames, said

BATCHING = Sending(batching=True, batch_messages_max=3, batch_bytes_max=100)


PLAIN = Sending()


def attached(settings: Sending = PLAIN, *, last: int = -1, size: int = 1 << 20) -> Outbox:
    outbox = Outbox(1, settings)
    outbox.attach("ann", last, None, size)
    return outbox


def payloads(outbox: Outbox) -> list[list[bytes]]:
    """What goes out, by entry."""
    from penstock.model.entry import Entry

    entries = [Entry(0, 0, 0, 1, 0, 0, frame.entry) for frame in frames(outbox.take())]
    return [[message.payload for message in wire.decode(entry)] for entry in entries]


def results(outbox: Outbox) -> list[tuple[list[Any], Any]]:
    return [(settled.tokens, settled.error and type(settled.error)) for settled in outbox.settled()]


def test_a_message_goes_and_its_receipt_settles_it() -> None:
    outbox = attached()
    outbox.add_plain(b"one", "a", 1.0)
    assert said(outbox.take()) == ["SEND sequence_id=0"]
    assert (outbox.count, outbox.in_flight) == (1, True)

    assert outbox.receipt(0, 5, 6)
    (settled,) = outbox.settled()
    assert [str(message_id) for message_id in settled.ids(2, "topic")] == ["(5,6,2,-1)"]
    assert (outbox.count, outbox.last_sequence_id) == (0, 0)


def test_batches_close_by_count_by_size_by_time_and_by_hand() -> None:
    outbox = attached(BATCHING)
    for number in range(4):
        outbox.add_plain(b"%d" % number, number, 1.0)
    assert payloads(outbox) == [[b"0", b"1", b"2"]]

    outbox.add_plain(b"x" * 100, 4, 1.0)  # too much for the batch that 3 is in, and enough for one
    assert payloads(outbox) == [[b"3"], [b"x" * 100]]

    outbox.add_plain(b"4", 4, 1.0)
    assert outbox.deadline() == pytest.approx(1.01)
    outbox.tick(1.005)
    assert payloads(outbox) == []
    outbox.tick(1.02)
    assert payloads(outbox) == [[b"4"]]

    outbox.add_plain(b"5", 5, 2.0)
    outbox.flush(2.0)
    assert payloads(outbox) == [[b"5"]]


def test_a_batch_is_one_frame_with_the_highest_sequence_id() -> None:
    outbox = attached(BATCHING)
    for number in range(3):
        outbox.add_plain(b"%d" % number, number, 1.0)
    assert said(outbox.take()) == ["SEND sequence_id=0 num_messages=3 highest_sequence_id=2"]

    outbox.receipt(0, 5, 6)
    (settled,) = outbox.settled()
    assert settled.tokens == [0, 1, 2]
    assert [(i.batch_index(), i.batch_size()) for i in settled.ids(-1, "t")] == [(0, 3), (1, 3), (2, 3)]
    assert outbox.last_sequence_id == 2


def test_plain_messages_and_others_share_a_batch() -> None:
    outbox = attached(BATCHING)
    outbox.add_plain(b"a", None, 1.0)
    outbox.add(OutMessage(payload=b"b", key="k"), None, 1.0)
    outbox.add_plain(b"c", None, 1.0)

    assert payloads(outbox) == [[b"a", b"b", b"c"]]


def test_what_has_no_receipt_goes_again_with_the_same_numbers() -> None:
    outbox = attached()
    for number in range(3):
        outbox.add_plain(b"%d" % number, number, 1.0)
    first = outbox.take()
    outbox.receipt(0, 1, 1)
    outbox.detach()
    outbox.add_plain(b"3", 3, 2.0)
    assert outbox.take() == []

    outbox.attach("ann", 0, None, 1 << 20)
    again = outbox.take()

    assert again[:4] == first[2:]
    assert said(again) == [f"SEND sequence_id={number}" for number in (1, 2, 3)]


def test_a_receipt_out_of_order_means_a_new_connection() -> None:
    outbox = attached()
    outbox.add_plain(b"0", 0, 1.0)
    outbox.add_plain(b"1", 1, 1.0)

    assert not outbox.receipt(1, 1, 1)
    assert outbox.receipt(9, 1, 1), "one that was given up before is nothing"


def test_sequence_ids_begin_where_the_broker_or_the_user_says() -> None:
    outbox = attached(last=41)
    outbox.add_plain(b"", None, 1.0)
    assert said(outbox.take()) == ["SEND sequence_id=42"]
    outbox = attached(Sending(initial_sequence_id=9), last=41)
    outbox.add_plain(b"", None, 1.0)
    outbox.add(OutMessage(payload=b"", sequence_id=100), None, 1.0)
    outbox.add_plain(b"", None, 1.0)
    assert said(outbox.take()) == [f"SEND sequence_id={n}" for n in (10, 100, 11)]


def test_messages_time_out_with_all_that_follow_them() -> None:
    """Were those stored, a broker that deduplicates would take the first for a repeat when it is sent again."""
    outbox = attached(Sending(timeout_s=5, batching=True))
    outbox.add_plain(b"0", "old", 1.0)
    outbox.flush(1.0)
    outbox.detach()
    outbox.add_plain(b"1", "young", 4.0)
    assert outbox.deadline() == pytest.approx(4.01)
    outbox.tick(6.5)
    assert results(outbox) == [(["old"], Timeout), (["young"], Timeout)]
    outbox.add_plain(b"2", "new", 7.0)
    outbox.flush(7.0)
    outbox.tick(7.5)
    assert results(outbox) == []
    outbox.attach("ann", -1, None, 1 << 20)
    assert payloads(outbox) == [[b"2"]]


def test_what_is_refused_fails_alone() -> None:
    outbox = attached()
    outbox.add_plain(b"0", 0, 1.0)
    outbox.add_plain(b"1", 1, 1.0)
    outbox.refused(0, InvalidMessage("no"))
    outbox.receipt(1, 1, 1)

    assert results(outbox) == [([0], InvalidMessage), ([1], None)]


def test_a_batch_that_is_refused_is_named_by_its_highest_sequence_id() -> None:
    outbox = attached(BATCHING)
    for number in range(3):
        outbox.add_plain(b"%d" % number, number, 1.0)
    outbox.flush(1.0)
    outbox.add_plain(b"3", 3, 1.0)
    outbox.flush(1.0)
    outbox.refused(2, InvalidMessage("no"))
    outbox.receipt(3, 1, 1)

    assert results(outbox) == [([0, 1, 2], InvalidMessage), ([3], None)]


def test_what_cannot_be_encoded_fails_alone() -> None:
    outbox = attached(BATCHING)
    outbox.add(OutMessage(payload=b"a", key="\ud800"), "bad", 1.0)
    outbox.add(OutMessage(payload=b"b", key="k"), "good", 1.0)
    outbox.flush(1.0)

    assert results(outbox) == [(["bad"], InvalidMessage)]
    assert payloads(outbox) == [[b"b"]]


def test_delayed_messages_and_requests_go_alone_and_keep_their_place() -> None:
    outbox = attached(BATCHING)
    outbox.add_plain(b"0", None, 1.0)
    outbox.add(OutMessage(payload=b"1", deliver_at=99), None, 1.0, alone=True)
    outbox.add_plain(b"2", None, 1.0)
    outbox.flush(1.0)

    assert payloads(outbox) == [[b"0"], [b"1"], [b"2"]]


def test_batches_by_key() -> None:
    settings = Sending(batching=True, batch_messages_max=3, batching_type=BatchingType.KeyBased)
    outbox = attached(settings)
    for number in range(4):
        outbox.add(OutMessage(payload=b"%d" % number, key="ab"[number % 2]), None, 1.0)
    outbox.flush(1.0)

    assert said(outbox.take()) == [
        "SEND sequence_id=0 num_messages=2 highest_sequence_id=1",
        "SEND sequence_id=2 num_messages=2 highest_sequence_id=3",
    ]


def test_large_messages_are_refused_or_split() -> None:
    outbox = attached(size=200)
    outbox.add_plain(b"x" * 500, "large", 1.0)
    assert results(outbox) == [(["large"], MessageTooBig)]

    outbox = attached(Sending(chunking=True), size=200)
    outbox.add_plain(b"x" * 500, "large", 1.0)
    chunks = frames(outbox.take())
    assert all(frame.command.send.is_chunk and len(frame.entry) <= 200 for frame in chunks)
    assert len(chunks) > 2
    metadata = [parse(frame.entry)[0] for frame in chunks]
    assert [m.chunk_id for m in metadata] == list(range(len(chunks)))
    for number in range(len(chunks)):
        outbox.receipt(0, 1, number)
    (settled,) = outbox.settled()
    assert settled.entry == len(chunks) - 1
    assert settled.chunks == tuple((1, number) for number in range(len(chunks)))


def test_payloads_are_compressed() -> None:
    outbox = attached(Sending(compression=CompressionType.ZLib))
    outbox.add_plain(b"x" * 1000, None, 1.0)
    (frame,) = frames(outbox.take())

    assert len(frame.entry) < 200
    assert parse(frame.entry)[0].uncompressed_size == 1000


def schema(name: str) -> Schema:
    return Schema(SchemaInfo(SchemaType.AVRO, b'"%b"' % name.encode(), name))


def test_messages_wait_for_the_version_of_a_new_schema_and_others_behind_them() -> None:
    outbox = attached(BATCHING)
    first, second = schema("int"), schema("string")
    outbox.add_plain(b"0", 0, 1.0)
    outbox.add(OutMessage(payload=b"1"), 1, 1.0, first)
    outbox.add_plain(b"2", 2, 1.0)
    outbox.add(OutMessage(payload=b"3"), 3, 1.0, second)
    outbox.add(OutMessage(payload=b"4"), 4, 1.0, first)
    assert outbox.wanted is first
    assert payloads(outbox) == []

    outbox.registered(first, 0)
    assert outbox.wanted is second
    assert payloads(outbox) == [[b"0"], [b"1"]]
    outbox.registered(second, 1)
    assert outbox.wanted is None
    outbox.flush(1.0)
    assert payloads(outbox) == [[b"2"], [b"3"], [b"4"]]

    outbox.add(OutMessage(payload=b"5"), 5, 1.0, schema("int"))
    assert outbox.wanted is None, "an equal schema is known"


def test_a_refused_schema_fails_its_message_alone() -> None:
    outbox = attached()
    refused = schema("int")
    outbox.add(OutMessage(payload=b"0"), 0, 1.0, refused)
    outbox.add_plain(b"1", 1, 1.0)
    outbox.unregistered(refused, IncompatibleSchema("no"))

    assert results(outbox) == [([0], IncompatibleSchema)]
    assert payloads(outbox) == [[b"1"]]
    outbox.add(OutMessage(payload=b"2"), 2, 1.0, refused)
    assert outbox.wanted is refused, "it may be compatible later"


def test_the_answer_for_a_message_that_timed_out_concerns_nobody_else() -> None:
    outbox = attached(Sending(timeout_s=5))
    first, second = schema("int"), schema("string")
    outbox.add(OutMessage(payload=b"0"), 0, 1.0, first)
    outbox.tick(7.0)
    assert results(outbox) == [([0], Timeout)]
    outbox.add(OutMessage(payload=b"1"), 1, 7.0, second)
    outbox.unregistered(first, IncompatibleSchema("no"))

    assert results(outbox) == []
    assert outbox.wanted is second


def test_before_the_broker_has_named_it_nothing_goes() -> None:
    outbox = Outbox(1, Sending())
    outbox.add_plain(b"0", None, 1.0)
    outbox.add(OutMessage(payload=b"1"), None, 1.0, StringSchema())
    outbox.flush_if_named(1.0)
    assert outbox.take() == []
    outbox.attach("ann", -1, None, 1 << 20)
    assert payloads(outbox) == [[b"0"]]
    assert outbox.wanted is not None


class Request:
    is_request = True


def test_replies_find_who_asked_before_and_after_the_receipt() -> None:
    outbox = attached()
    early, late, other = Request(), Request(), Request()
    for token in (early, late, other):
        outbox.add(OutMessage(payload=b"?"), token, 1.0, alone=True)

    assert outbox.waits.answered(0, 1, 0) is early, "a reply may overtake the receipt"
    for number in range(3):
        outbox.receipt(number, 1, number)
    assert outbox.waits.answered(None, 1, 1) is late
    assert outbox.waits.answered(1, 1, 1) is None, "the first reply wins"
    outbox.waits.forget(other)
    assert outbox.waits.answered(2, 1, 2) is None
    assert len(outbox.waits) == 0


def test_the_end_fails_everything() -> None:
    outbox = attached(BATCHING)
    outbox.add_plain(b"0", 0, 1.0)
    outbox.flush(1.0)
    outbox.add_plain(b"1", 1, 1.0)
    outbox.add(OutMessage(payload=b"2"), 2, 1.0, schema("int"))
    outbox.fail()

    assert results(outbox) == [([0], NotConnected), ([1], NotConnected), ([2], NotConnected)]
    assert outbox.count == 0
