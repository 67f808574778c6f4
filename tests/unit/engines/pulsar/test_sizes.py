"""Bytes between places of a log, from what a cluster counts of its ledgers."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.pulsar.search import LedgerSize, bytes_from, ledger_sizes, place_with

STATS = {
    "currentLedgerEntries": 4,
    "currentLedgerSize": 400,
    "ledgers": [
        {"ledgerId": 3, "entries": 10, "size": 2000},
        {"ledgerId": 5, "entries": 0, "size": 0},
        {"ledgerId": 9, "entries": 0, "size": 0},
    ],
}


def test_the_ledger_that_is_written_is_counted_apart() -> None:
    assert ledger_sizes(STATS) == [LedgerSize(3, 10, 2000), LedgerSize(9, 4, 400)]
    assert ledger_sizes({}) == []


def test_bytes_from_a_place_on() -> None:
    sizes = ledger_sizes(STATS)
    assert bytes_from(sizes, (-1, -1)) == 2400
    assert bytes_from(sizes, (3, 5)) == 1400
    assert bytes_from(sizes, (3, 10)) == 400
    assert bytes_from(sizes, (9, 3)) == 100
    assert bytes_from(sizes, (9, 4)) == 0


def test_the_first_entry_with_so_much_after_it() -> None:
    sizes = ledger_sizes(STATS)
    assert place_with(sizes, 0) is None
    assert place_with(sizes, 99) is None
    assert place_with(sizes, 100) == (9, 3)
    assert place_with(sizes, 400) == (9, 0)
    assert place_with(sizes, 599) == (9, 0)
    assert place_with(sizes, 600) == (3, 9)
    assert place_with(sizes, 9999) == (3, 0)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10_000)), min_size=1, max_size=5),
    st.integers(0, 60_000),
)
def test_what_is_found_is_no_more_than_was_asked_for(found: list[tuple[int, int]], size: int) -> None:
    sizes = [LedgerSize(number, *one) for number, one in enumerate(found)]
    place = place_with(sizes, size)
    if place is not None:
        assert bytes_from(sizes, place) <= size
