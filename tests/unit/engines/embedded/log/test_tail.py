"""The tails of all logs share one bound; each holds entries that follow one another."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.embedded.log.tail import ENTRY_BYTES, Tail, TailCache
from penstock.model.entry import Entry


def entry(ledger: int, number: int, count: int = 1, size: int = 10) -> Entry:
    return Entry(ledger, number, number * 3, count, 0, 0, b"x" * size)


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3), st.sampled_from([1, 1, 1, 1, 5])), max_size=80),
)
def test_tails_are_the_newest_entries_within_the_bound(
    entries_max: int, appends: list[tuple[int, int, int]]
) -> None:
    cache = TailCache(entries_max * (ENTRY_BYTES + 10))
    tails = [Tail(), Tail()]
    order: list[tuple[int, Entry]] = []
    held: list[list[Entry]] = [[], []]
    following = [0, 0]
    for ledger, count, step in appends:  # a step of more than 1 leaves a gap
        following[ledger] += step
        one = entry(ledger, following[ledger], count)
        if step > 1:
            held[ledger].clear()
        cache.put(tails[ledger], [one], len(one.data))
        held[ledger].append(one)
        order.append((ledger, one))
        while len(order) > entries_max:
            gone_ledger, gone = order.pop(0)
            if held[gone_ledger] and held[gone_ledger][0] is gone:
                del held[gone_ledger][0]
        for tail, kept in zip(tails, held, strict=True):
            assert len(tail) == len(kept)
            for number in range(following[ledger] + 2):
                found = next((e for e in kept if e.entry_id == number), None)
                assert tail.get(number) is found
                assert tail.slice(number, 3, 1 << 20) == (
                    [] if found is None else kept[kept.index(found) :][:3]
                )
                for offset in range(number * 3, number * 3 + 3):
                    holder = next((e for e in kept if e.offset <= offset < e.end), None)
                    assert tail.find(offset) is holder
    assert cache.bytes == len(order) * (ENTRY_BYTES + 10)


def test_a_slice_is_bounded_in_bytes_but_has_one_entry() -> None:
    cache, tail = TailCache(1 << 20), Tail()
    for number in range(4):
        cache.put(tail, [entry(0, number, size=10)], 10)
    assert [e.entry_id for e in tail.slice(1, 10, 25)] == [1, 2]
    assert [e.entry_id for e in tail.slice(1, 10, 5)] == [1]
    tail.clear()
    assert tail.slice(1, 10, 25) == []
    assert tail.get(1) is None
    cache.put(tail, [entry(0, 9)], 10)
    assert tail.first == 9
