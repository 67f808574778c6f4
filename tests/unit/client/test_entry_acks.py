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
