"""The tails of all logs share one bound; each holds entries that follow one another."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.shared.tail import ENTRY_BYTES, Tail, TailCache
from penstock.model.entry import AppendResult, Entry, NewRun


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
        cache.put(tails[ledger], (one,), len(one.data))
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


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.booleans(), st.integers(1, 9), st.sampled_from([0, 0, 0, 1])), max_size=20),
    st.lists(
        st.tuples(st.sampled_from(["get", "slice", "find"]), st.integers(0, 99), st.integers(1, 9)),
        max_size=9,
    ),
)
def test_a_run_is_read_like_its_entries(
    entries_max: int, appends: list[tuple[bool, int, int]], reads: list[tuple[str, int, int]]
) -> None:
    caches, tails = [TailCache(entries_max * (ENTRY_BYTES + 10)) for _ in range(2)], [Tail(), Tail()]
    entry_id = 0
    for is_run, count, gap in appends:
        entry_id += gap
        entries = [Entry(1, at, at + 5, 1, 7, 0, b"%010d" % at) for at in range(entry_id, entry_id + count)]
        caches[0].put(tails[0], entries, 10 * count)
        if is_run:
            run = NewRun([one.data for one in entries], 7)
            caches[1].put_run(tails[1], 1, AppendResult(entry_id, entry_id + 5), run)
        else:
            caches[1].put(tails[1], entries, 10 * count)
        entry_id += count
        assert len(tails[0]) == len(tails[1])
        assert caches[0].bytes == caches[1].bytes
        for what, at, many in reads:
            match what:
                case "get":
                    assert tails[1].get(at) == tails[0].get(at)
                case "slice":
                    assert tails[1].slice(at, many, 45) == tails[0].slice(at, many, 45)
                case "find":
                    assert tails[1].find(at) == tails[0].find(at)
    assert tails[1].get(entry_id - 1) is tails[1].get(entry_id - 1)
    assert tails[1].slice(tails[1].first, 99, 1 << 20) == tails[0].slice(tails[0].first, 99, 1 << 20)


def test_what_was_appended_together_goes_together() -> None:
    cache, tail = TailCache(5 * (ENTRY_BYTES + 10)), Tail()
    cache.put_run(tail, 1, AppendResult(0, 0), NewRun([bytes(10)] * 4, 1))
    cache.put(tail, (entry(1, 4),), 10)
    assert len(tail) == 5
    cache.put(tail, (entry(1, 5),), 10)
    assert (tail.first, len(tail), cache.bytes) == (4, 2, 2 * (ENTRY_BYTES + 10))


def test_a_slice_is_bounded_in_bytes_but_has_one_entry() -> None:
    cache, tail = TailCache(1 << 20), Tail()
    for number in range(4):
        cache.put(tail, (entry(0, number, size=10),), 10)
    assert [e.entry_id for e in tail.slice(1, 10, 25)] == [1, 2]
    assert [e.entry_id for e in tail.slice(1, 10, 5)] == [1]
    tail.clear()
    assert tail.slice(1, 10, 25) == []
    assert tail.get(1) is None
    cache.put(tail, (entry(0, 9),), 10)
    assert tail.first == 9
