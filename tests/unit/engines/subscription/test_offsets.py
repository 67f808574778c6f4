"""The set of acknowledged offsets, beside Python's own set."""

import random

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.subscription.offsets import CHUNK, OffsetSet

operations = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3 * CHUNK), st.integers(0, 2**70)),
        st.tuples(st.just("next"), st.integers(0, 4), st.integers(0, 2**8)),
        st.tuples(st.just("raise"), st.integers(0, 3 * CHUNK), st.just(0)),
    ),
    max_size=30,
)


@given(operations, st.integers(0, 3 * CHUNK), st.integers(1, 200))
def test_it_is_the_set_it_says(steps: list[tuple[str, int, int]], probe: int, count: int) -> None:
    acked, model = OffsetSet(), set[int]()
    for what, offset, mask in steps:
        if what == "raise":
            acked.raise_mark(offset)
            model |= set(range(offset))
            continue
        at = acked.mark + offset if what == "next" else offset
        new = acked.add(at, mask)
        wanted = {at + i for i in range(mask.bit_length()) if mask >> i & 1}
        assert {at + i for i in range(new.bit_length()) if new >> i & 1} == wanted - model
        model |= wanted
    mark = next(o for o in range(len(model) + 1) if o not in model)
    assert acked.mark == mark
    assert acked.beyond == sum(1 for o in model if o > mark)
    assert [o for a, b in acked.ranges() for o in range(a, b + 1)] == sorted(o for o in model if o > mark)
    assert acked.mask(probe, count) == sum(1 << i for i in range(count) if probe + i in model)
    assert acked.next_gap(probe) == next(o for o in range(probe, probe + len(model) + 1) if o not in model)


@given(operations)
def test_saving_the_changes_is_saving_all(steps: list[tuple[str, int, int]]) -> None:
    acked = OffsetSet()
    stored: dict[int, bytes | None] = {}
    for what, offset, mask in steps:
        if what == "raise":
            acked.raise_mark(offset)
        else:
            acked.add(offset, mask)
        for number, bits in acked.take_changes().items():
            if bits is None:
                stored.pop(number, None)
            else:
                stored[number] = bits
        loaded = OffsetSet.load(acked.mark, dict(stored))
        assert (loaded.mark, loaded.beyond, list(loaded.ranges())) == (
            acked.mark,
            acked.beyond,
            list(acked.ranges()),
        )


def test_every_second_of_ten_million_is_small() -> None:
    acked = OffsetSet()
    every_second = sum(1 << i for i in range(1, 1000, 2))
    for offset in range(0, 10_000_000, 1000):
        acked.add(offset, every_second)
    assert acked.beyond == 5_000_000
    chunks = acked.take_changes()
    assert sum(len(bits or b"") for bits in chunks.values()) < 1_300_000
    loaded = OffsetSet.load(0, chunks)
    assert loaded.beyond == 5_000_000
    assert loaded.next_gap(9_999_999) == 10_000_000


def test_what_could_not_be_saved_is_changed_again() -> None:
    acked = OffsetSet()
    acked.add(5, 1)
    taken = acked.take_changes()
    assert not acked.changed
    acked.touch(taken)
    assert acked.changed
    assert acked.take_changes() == taken


def test_random_order_ends_at_the_end() -> None:
    order = list(range(20_000))
    random.Random(7).shuffle(order)
    acked = OffsetSet()
    for offset in order:
        assert acked.add(offset, 1) == 1
    assert (acked.mark, acked.beyond) == (20_000, 0)
    assert set(acked.take_changes().values()) == {None}
