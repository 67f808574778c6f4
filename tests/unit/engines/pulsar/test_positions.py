"""Positions in a log of a cluster, and the search for an offset."""

from bisect import bisect_right
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.entries.arrived import Arrived
from penstock.engines.pulsar.positions import Place, entry_of, opaque, opaque_end, place_of
from penstock.engines.pulsar.search import STEPS_MAX, find_offset, ledgers_of, place_at
from penstock.model.entry import Entry
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
