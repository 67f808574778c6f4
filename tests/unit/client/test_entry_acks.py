"""Acknowledgements of entries, before they are sent."""

from penstock.client.entries.acks import EntryAcks


def test_parts_of_one_entry_add_up() -> None:
    acks = EntryAcks()
    acks.add_part((1, 2), 0b1110)
    acks.add_part((1, 2), 0b1101)
    acks.add([(1, 3)])
    acks.add_part((1, 3), 0b01)
    (group,) = acks.take()
    assert group.places == {(1, 2): 0b1100, (1, 3): 0}


def test_what_has_no_answer_is_given_to_another_connection() -> None:
    acks, others = EntryAcks(), EntryAcks()
    acks.add_up_to((1, 1), 0b10)
    acks.add([(1, 2)])
    answered, sent = acks.take()
    acks.add_part((1, 3), 0b01)
    acks.settle(answered)

    class Other:
        acknowledge = others.add
        acknowledge_part = others.add_part
        acknowledge_up_to = others.add_up_to

    acks.give_to(Other())
    assert [(group.cumulative, group.places) for group in others.take()] == [
        (False, {(1, 2): 0, (1, 3): 0b01})
    ]
    acks.settle(sent)
    acks.add_up_to((1, 4), 0b10)
    acks.give_to(Other())
    assert [(group.cumulative, group.places) for group in others.take()] == [
        (True, {(1, 4): 0b10}),
        (False, {(1, 3): 0b01}),
    ]
