"""A consumer's session: entries in, messages out, permits, acknowledgements and redeliveries as commands."""

import pytest

from penstock.client.enums import ConsumerType
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.schema import AutoConsumeSchema, BytesSchema
from penstock.client.session.batch import Sending
from penstock.client.session.inbox import Inbox
from penstock.client.session.outbox import Outbox
from penstock.client.session.redelivery import Receiving
from penstock.model.schema import STRING_SCHEMA

from .broker import delivery, frames, said


def inbox(**settings: object) -> Inbox:
    made = Inbox(7, "topic", -1, Receiving(**settings), BytesSchema())  # type: ignore[arg-type]
    made.attach()
    made.take()
    return made


def data(messages: list[Message]) -> list[bytes]:
    return [message.data() for message in messages]


def test_it_allows_a_queue_and_renews_it_in_halves() -> None:
    made = Inbox(7, "topic", -1, Receiving(queue_size=4), BytesSchema())
    assert said(made.take()) == []
    made.attach()
    assert said(made.take()) == ["FLOW messagePermits=4"]
    for number in range(3):
        made.deliver(delivery(number, b"%d" % number))
    assert data(made.arrived()) == [b"0", b"1", b"2"]
    made.consumed(1)
    assert said(made.take()) == []
    made.consumed(1)
    assert said(made.take()) == ["FLOW messagePermits=2"]

    made.detach()
    made.attach()
    assert said(made.take()) == ["FLOW messagePermits=4"], "a new connection begins anew"


def test_without_a_queue_each_receive_asks() -> None:
    made = inbox(queue_size=0)
    made.ask()
    assert said(made.take()) == ["FLOW messagePermits=1"]
    made.start_at(MessageId(-1, 1, 5), inclusive=False)
    made.deliver(delivery(5, b"not wanted"))
    assert said(made.take()) == ["FLOW messagePermits=1"], "whoever waits still does"


def test_messages_of_a_batch_are_acknowledged_once_all_are() -> None:
    made = inbox(type=ConsumerType.Shared)
    made.deliver(delivery(3, b"a", b"b", b"c"))
    a, b, c = made.arrived()
    made.acknowledge(a.message_id(), 1.0)
    made.acknowledge(c.message_id(), 1.0)
    made.tick(2.0)
    assert said(made.take()) == []
    made.acknowledge(b.message_id(), 2.0)
    assert made.deadline() == 2.1
    made.tick(2.2)
    assert said(made.take()) == ["ACK ack_type=0 message_id=[1:3]"]


def test_or_one_by_one() -> None:
    made = inbox(type=ConsumerType.Shared, batch_index_ack=True)
    made.deliver(delivery(3, b"a", b"b", b"c"))
    a, b, c = made.arrived()
    made.acknowledge(b.message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=0 message_id=[1:3[5]]"]
    made.acknowledge(a.message_id(), 1.0)
    made.acknowledge(c.message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=0 message_id=[1:3]"]


def test_what_was_acknowledged_before_is_not_seen_again() -> None:
    made = inbox(queue_size=4)
    made.deliver(delivery(3, b"a", b"b", b"c", ack_set=0b101))
    a, c = made.arrived()
    assert (a.data(), c.data()) == (b"a", b"c")
    made.acknowledge(a.message_id(), 1.0)
    made.acknowledge(c.message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=0 message_id=[1:3]"]


def test_cumulative_acknowledgements() -> None:
    made = inbox()
    made.deliver(delivery(3, b"a", b"b"))
    made.deliver(delivery(4, b"c"))
    a, b, c = made.arrived()
    made.acknowledge_up_to(a.message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=1 message_id=[1:2]"], "the entry is not done"
    made.acknowledge_up_to(b.message_id(), 1.0)
    made.acknowledge_up_to(c.message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=1 message_id=[1:4]"]

    made = inbox(batch_index_ack=True)
    made.deliver(delivery(3, b"a", b"b", b"c"))
    made.acknowledge_up_to(made.arrived()[1].message_id(), 1.0)
    made.flush()
    assert said(made.take()) == ["ACK ack_type=1 message_id=[1:3[4]]"]


def test_many_acknowledgements_do_not_wait() -> None:
    made = inbox()
    for number in range(1000):
        made.acknowledge(MessageId(-1, 1, number), 1.0)

    (ack,) = frames(made.take())
    assert len(ack.command.ack.message_id) == 1000


def test_acknowledgements_outlast_the_connection() -> None:
    made = inbox()
    made.acknowledge(MessageId(-1, 1, 5), 1.0)
    made.detach()
    made.tick(2.0)
    assert made.take() == []
    made.attach()
    made.flush()
    assert said(made.take())[1:] == ["ACK ack_type=0 message_id=[1:5]"]


def test_refused_messages_are_asked_for_again() -> None:
    made = inbox(type=ConsumerType.Shared, nack_delay_s=5)
    made.deliver(delivery(3, b"a"))
    made.deliver(delivery(4, b"b"))
    a, b = made.arrived()
    made.refuse(a.message_id(), 1.0)
    made.refuse(b.message_id(), 2.0)
    made.acknowledge(b.message_id(), 2.0)
    made.flush()
    made.take()
    assert made.deadline() == 6.0
    made.tick(6.0)
    assert said(made.take()) == ["REDELIVER_UNACKNOWLEDGED_MESSAGES message_ids=[1:3]"]
    made.tick(9.0)
    assert made.take() == []


def test_an_ordered_subscription_is_rewound_whole() -> None:
    made = inbox(nack_delay_s=5)
    made.deliver(delivery(3, b"a"))
    (a,) = made.arrived()
    made.refuse(a.message_id(), 1.0)
    made.tick(6.0)

    assert said(made.take()) == ["REDELIVER_UNACKNOWLEDGED_MESSAGES"]
    assert made.rewound


def test_messages_not_acknowledged_in_time() -> None:
    made = inbox(type=ConsumerType.Shared, unacked_timeout_s=10)
    made.deliver(delivery(3, b"a"))
    made.deliver(delivery(4, b"b"))
    a, b = made.arrived()
    made.handed_out(a.message_id(), 1.0)
    made.handed_out(b.message_id(), 2.0)
    made.acknowledge(a.message_id(), 3.0)
    made.flush()
    made.take()
    assert made.deadline() == 12.0
    made.tick(12.0)
    assert said(made.take()) == ["REDELIVER_UNACKNOWLEDGED_MESSAGES message_ids=[1:4]"]


def test_the_last_chance_and_after_it() -> None:
    made = inbox(type=ConsumerType.Shared, nack_delay_s=1, dead_after=2)
    made.deliver(delivery(3, b"a", b"b", redeliveries=2))
    a, b = made.arrived()
    made.acknowledge(b.message_id(), 1.0)
    made.refuse(a.message_id(), 1.0)
    made.tick(3.0)
    assert [data(messages) for messages in made.dead()] == [[b"a"]], "the other was acknowledged"
    assert made.take() == []

    made.deliver(delivery(4, b"c", redeliveries=3))
    assert made.arrived() == []
    assert [data(messages) for messages in made.dead()] == [[b"c"]]


def test_where_to_begin() -> None:
    made = inbox(queue_size=1000)
    made.start_at(MessageId(-1, 1, 3, 1, 3), inclusive=False)
    made.deliver(delivery(2, b"before"))
    made.deliver(delivery(3, b"a", b"b", b"c"))
    made.deliver(delivery(4, b"d"))
    assert data(made.arrived()) == [b"c", b"d"]

    made.start_at(MessageId(-1, 1, 3, 1, 3), inclusive=True)
    made.deliver(delivery(3, b"a", b"b", b"c"))
    assert data(made.arrived()) == [b"b", b"c"]
    made.start_at(MessageId(-1, 1, 4), inclusive=True)
    made.deliver(delivery(3, b"a", b"b", b"c"))
    made.deliver(delivery(4, b"d"))
    assert data(made.arrived()) == [b"d"]


def test_what_comes_while_a_seek_is_on_its_way_is_of_before() -> None:
    made = inbox(queue_size=1)
    made.muted = True
    made.deliver(delivery(3, b"before"))
    assert made.arrived() == []
    made.sought(0)
    assert said(made.take()) == ["FLOW messagePermits=1"], "what was dropped had the only permit"
    made.deliver(delivery(1, b"after"))
    assert data(made.arrived()) == [b"after"]


def test_messages_wait_for_the_schema_they_were_written_with() -> None:
    made = Inbox(7, "topic", -1, Receiving(), AutoConsumeSchema())
    made.attach()
    made.deliver(delivery(1, b"plain"))
    made.deliver(delivery(2, b"text", version=4))
    made.deliver(delivery(3, b"behind"))
    assert data(made.arrived()) == [b"plain"]
    assert made.wanted == 4
    made.writer(4, STRING_SCHEMA)
    assert [message.value() for message in made.arrived()] == ["text", b"behind"]
    assert made.wanted is None
    made.deliver(delivery(4, b"known", version=4))
    assert [message.value() for message in made.arrived()] == ["known"]


def test_chunks_are_put_together_and_acknowledged_together() -> None:
    sender = Outbox(1, Sending(chunking=True))
    sender.attach("ann", -1, None, 200)
    sender.add_plain(b"x" * 300, None, 1.0)
    sender.add_plain(b"y" * 300, None, 1.0)
    parts = [frame.entry for frame in frames(sender.take())]
    half = len(parts) // 2
    made = inbox()
    order = [index for pair in zip(range(half), range(half, len(parts)), strict=True) for index in pair]
    for index in order:
        made.deliver(delivery(index, data=parts[index]))
    made.deliver(delivery(order[0], data=parts[order[0]]))  # sent twice

    x, y = made.arrived()
    assert (x.data(), y.data()) == (b"x" * 300, b"y" * 300)
    assert x.message_id().entry_id() == half - 1
    made.acknowledge(x.message_id(), 1.0)
    made.flush()
    (ack,) = [frame for frame in frames(made.take()) if frame.command.HasField("ack")]
    assert sorted(one.entryId for one in ack.command.ack.message_id) == list(range(half))


@pytest.mark.parametrize("acknowledged", [False, True])
def test_the_oldest_incomplete_chunked_message_is_given_up_and_acknowledged_if_asked(
    acknowledged: bool,
) -> None:
    sender = Outbox(1, Sending(chunking=True))
    sender.attach("ann", -1, None, 200)
    sender.add_plain(b"x" * 300, None, 1.0)
    sender.add_plain(b"y" * 300, None, 1.0)
    parts = [frame.entry for frame in frames(sender.take())]
    half = len(parts) // 2
    made = inbox(chunked_max=1, ack_oldest_chunked=acknowledged)
    for index in (0, *range(half, len(parts))):
        made.deliver(delivery(index, data=parts[index]))

    assert data(made.arrived()) == [b"y" * 300]
    assert said(made.take()) == (["ACK ack_type=0 message_id=[1:0]"] if acknowledged else [])


def test_what_cannot_be_opened_is_let_go_with_the_reason() -> None:
    made = inbox()
    broken = bytearray(delivery(3, b"a").entry)
    broken[-1] ^= 1
    made.deliver(delivery(3, data=bytes(broken)))
    made.deliver(delivery(4, data=b"nonsense"))

    assert made.arrived() == []
    assert said(made.take()) == [
        "ACK ack_type=0 message_id=[1:3] validation_error=2",
        "ACK ack_type=0 message_id=[1:4] validation_error=3",
    ]


def test_replies_go_at_once() -> None:
    made = inbox()
    made.deliver(delivery(3, b"?"))
    (message,) = made.arrived()
    made.reply(message.message_id(), "ann", b"!", is_error=True, now=1.0)

    assert said(made.take()) == [
        "ACK ack_type=0 message_id=[1:3] reply_to_client=ann reply_payload=b'!' reply_is_error=True"
    ]
