"""Positions in a log of a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.entries.arrived import Arrived, Place
from penstock.engines.attached.positions import entry_of, opaque, opaque_end, place_of
from penstock.model.message_id import MessageId

PLACES = st.tuples(st.integers(0, 2**62), st.integers(0, 2**39))


@given(first=PLACES, second=PLACES, index=st.integers(0, 2**20))
def test_opaque_positions_rise_with_the_log(first: Place, second: Place, index: int) -> None:
    assert place_of(opaque(first, index)) == first
    if first < second:
        assert opaque(first, index) < opaque(second)


def arrived(count: int, index: int | None) -> Arrived:
    return Arrived(
        ledger=3,
        entry_id=5,
        count=count,
        mask=(1 << count) - 1,
        publish_time=1,
        deliver_at=0,
        data=b"",
        index=index,
        redeliveries=0,
        schema_version=None,
    )


def test_the_position_of_an_entry() -> None:
    assert entry_of(arrived(4, 9), numbered=True).offset == 6  # the number is the last message's
    assert entry_of(arrived(4, None), numbered=True).offset == 0
    entry = entry_of(arrived(4, 9), numbered=False)
    assert entry.offset == opaque((3, 5))
    assert entry.end == opaque_end(MessageId(3, 5, -1, 3, 4))
