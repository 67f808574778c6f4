"""How many messages topics may send."""

import hypothesis.strategies as st
from hypothesis import given

from penstock.engines.pulsar.permits import FIRST_BYTES, MessageSize, share_of, to_grant


def test_until_a_message_has_come_they_are_taken_for_large() -> None:
    size = MessageSize()
    assert size.fit(4 * 1024 * 1024) == 256
    assert size.fit(FIRST_BYTES - 1) == 1
    assert size.fit(0) == size.fit(-5) == 0


def test_the_size_rises_at_once_and_falls_slowly() -> None:
    size = MessageSize()
    size.came(100, 10_000)
    assert size.bytes == 100
    size.came(2, 20_000)
    assert size.bytes == 10_000
    size.came(100, 10_000)
    assert 9_000 < size.bytes < 10_000
    for _ in range(200):
        size.came(100, 10_000)
    assert round(size.bytes) == 100


def test_each_topic_gets_a_share_and_at_least_one() -> None:
    assert share_of(1000, 4) == 250
    assert share_of(3, 100) == 1
    assert share_of(0, 4) == share_of(-7, 4) == 0


def test_permits_are_given_by_halves_of_the_share() -> None:
    assert to_grant(1000, 600) == 0
    assert to_grant(1000, 500) == 500
    assert to_grant(1, 0) == 1
    assert to_grant(10, -5) == 15  # a batch overdrew them


@given(st.integers(0, 5000), st.integers(1, 50), st.integers(-50, 5000))
def test_open_permits_stay_within_the_share(room: int, topics: int, permitted: int) -> None:
    share = share_of(room, topics)
    more = to_grant(share, permitted)
    assert more >= 0
    if more:
        assert permitted + more == share
