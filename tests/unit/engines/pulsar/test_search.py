"""The search for an offset in a log of many ledgers."""

from bisect import bisect_right
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.entries.arrived import Place
from penstock.engines.pulsar.search import STEPS_MAX, find_offset, ledgers_of, place_at
from penstock.model.entry import Entry


@given(
    ledgers=st.lists(st.lists(st.integers(1, 50), max_size=20), min_size=1, max_size=6),
    share=st.floats(0, 1, exclude_max=True),
    trimmed=st.integers(0, 3),
)
async def test_an_offset_is_found(ledgers: list[list[int]], share: float, trimmed: int) -> None:
    entries: dict[Place, Entry] = {}
    offset = 100
    for ledger, counts in enumerate(ledgers):
        for entry_id, count in enumerate(counts):
            entries[ledger, entry_id] = Entry(ledger, entry_id, offset, count, 0, 0, b"")
            offset += count
    there = dict(list(entries.items())[trimmed:])
    if not there:
        return
    starts = [entry.offset for entry in there.values()]
    wanted = starts[0] + int(share * (offset - starts[0]))
    stats: dict[str, Any] = {
        "ledgers": [{"ledgerId": number, "entries": len(counts)} for number, counts in enumerate(ledgers)]
    }
    if ledgers[-1]:
        stats["ledgers"][-1]["entries"] = 0  # of the one that is written
        stats["currentLedgerEntries"] = len(ledgers[-1])
    reads = 0

    async def read(place: Place) -> Entry | None:
        nonlocal reads
        reads += 1
        return there.get(place)

    found = await find_offset(wanted, stats, read)
    assert reads <= STEPS_MAX
    right = list(there)[bisect_right(starts, wanted) - 1]
    assert found == right


def test_the_ledgers_of_a_topic() -> None:
    stats = {
        "ledgers": [
            {"ledgerId": 4, "entries": 2},
            {"ledgerId": 5, "entries": 0},
            {"ledgerId": 9, "entries": 0},
        ],
        "currentLedgerEntries": 3,
    }
    assert ledgers_of(stats) == [(4, 2), (9, 3)]
    assert [place_at([(4, 2), (9, 3)], n) for n in (0, 1, 2, 4)] == [(4, 0), (4, 1), (9, 0), (9, 2)]
    assert ledgers_of({}) == []
