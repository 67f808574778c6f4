"""What is out, done and to come again of entries, and when."""

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.client.entries.arrived import Place
from penstock.engines.attached import outstanding
from penstock.engines.attached.outstanding import Outstanding, Redelivery
from penstock.model.entry import Entry
from penstock.testing.clock import ManualClock


def entry(number: int, count: int = 1) -> Entry:
    return Entry(5, number, 0, count, 0, 0, b"")


def test_an_entry_is_done_once_all_its_messages_are() -> None:
    out = Outstanding(counts_here=False)
    assert out.arrived(entry(1, 3), 0b111, 0)[1] == 0b111
    assert out.out == 3
    found = out.acknowledge((5, 1), 0)
    assert found is not None
    assert found[0] == 0b001
    assert found[1].left == 0b110
    assert out.acknowledge_bits((5, 1), 0b110)[1].left == 0  # type: ignore[index]
    assert len(out) == out.out == 0
    assert out.acknowledge((5, 1), 0) is None


def test_a_message_that_is_not_in_the_entry_is_not_acknowledged() -> None:
    out = Outstanding(counts_here=False)
    out.arrived(entry(1, 2), 0b11, 0)
    assert out.acknowledge((5, 1), 2) is None
    assert out.acknowledge((5, 2), 0) is None
    assert out.out == 2


def test_what_the_cluster_knows_as_done_is_not_delivered_and_completes_the_entry() -> None:
    out = Outstanding(counts_here=False)
    assert out.arrived(entry(1, 3), 0b100, 0)[1] == 0b100
    assert out.acknowledge((5, 1), 2)[1].left == 0  # type: ignore[index]


def test_of_an_entry_that_comes_again_only_what_came_back_is_delivered() -> None:
    out = Outstanding(counts_here=False)
    out.arrived(entry(1, 4), 0b1111, 0)
    out.acknowledge((5, 1), 0)
    assert out.take_back((5, 1), 0b0110, later=True) == 0b0110
    assert out.arrived(entry(1, 4), 0b1111, 1)[1] == 0  # their time has not come
    assert out.due({(5, 1): 0b0010}) == [(5, 1)]
    assert out.due({(5, 1): 0b0010}) == []
    row, wanted = out.arrived(entry(1, 4), 0b1111, 2)
    assert (wanted, row.redeliveries) == (0b0010, 2)
    assert out.out == 2


def test_redeliveries_are_counted_here_where_the_cluster_does_not() -> None:
    out = Outstanding(counts_here=True)
    assert out.arrived(entry(1), 1, 0)[0].redeliveries == 0
    out.take_back((5, 1), 1, later=False)
    row, wanted = out.arrived(entry(1), 1, 0)
    assert (wanted, row.redeliveries) == (1, 1)
    out.take_back((5, 1), 1, later=False, tried=False)  # it was never handed on
    assert out.arrived(entry(1), 1, 0)[0].redeliveries == 1
    out.take_back((5, 1), 1, later=False)
    assert out.arrived(entry(1), 1, 0)[0].redeliveries == 2


def test_a_delivery_of_before_a_seek_is_told_apart() -> None:
    out = Outstanding(counts_here=False)
    before, after = entry(1, 2), entry(1, 2)
    out.arrived(before, 0b11, 0)
    assert out.is_out(before, 0b11) == 0b11
    assert out.forget() == 2
    assert out.is_out(before, 0b11) == 0
    out.arrived(after, 0b11, 0)
    assert out.is_out(before, 0b11) == 0
    assert out.is_out(after, 0b10) == 0b10


def test_everything_before_an_entry_is_done_at_once() -> None:
    out = Outstanding(counts_here=True)
    for number in range(4):
        out.arrived(entry(number, 2), 0b11, 0)
    out.acknowledge((5, 1), 0)
    assert out.acknowledge_before((5, 2)) == 3
    assert sorted(out.places()) == [(5, 2), (5, 3)]
    assert out.out == 4


def test_the_entry_before_may_be_of_an_older_ledger() -> None:
    out = Outstanding(counts_here=True)
    assert out.previous((5, 3)) == (5, 2)
    assert out.previous((5, 0)) is None
    out.arrived(Entry(4, 17, 0, 1, 0, 0, b""), 1, 0)
    assert out.previous((5, 0)) == (4, 17)


def test_what_is_with_others_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "REMEMBERED_MAX", 3)
    out = Outstanding(counts_here=False)
    for number in range(5):
        out.arrived(entry(number, 2), 0b11, 0)
        out.acknowledge((5, number), 0)
        out.take_back((5, number), 0b10, later=False)
    assert len(out) == 3
    assert out.arrived(entry(4, 2), 0b11, 1)[1] == 0b10
    assert out.arrived(entry(0, 2), 0b11, 1)[1] == 0b11


def test_nothing_is_remembered_of_what_was_only_given_back() -> None:
    out = Outstanding(counts_here=False)
    out.arrived(entry(1, 2), 0b11, 0)
    out.take_back((5, 1), 0b11, later=False)
    assert len(out) == 0


@pytest.mark.parametrize("again", ["a new connection", "asked for"])
def test_what_is_acknowledged_while_it_is_on_its_way_again_is_not_delivered(again: str) -> None:
    out = Outstanding(counts_here=False)
    out.arrived(entry(1), 1, 0)
    if again == "asked for":
        out.take_back((5, 1), 1, later=True)
        assert out.due({(5, 1): 1}) == [(5, 1)]
    else:
        out.all_coming()
    found = out.acknowledge((5, 1), -1)
    assert found is not None
    assert not found[1].left
    assert out.acknowledge((5, 1), -1) is None
    row, wanted = out.arrived(entry(1), 1, 1)
    assert (wanted, row.left) == (0, 0)
    assert len(out) == out.out == 0
    assert out.arrived(entry(1), 1, 1)[1] == 1


def test_what_is_acknowledged_up_to_an_entry_while_it_is_on_its_way_is_not_delivered() -> None:
    out = Outstanding(counts_here=True)
    out.arrived(entry(1), 1, 0)
    out.arrived(entry(2), 1, 0)
    out.all_coming()
    assert out.acknowledge_before((5, 2)) == 1
    assert out.arrived(entry(1), 1, 0)[1] == 0
    assert out.out == 1


class Model:
    """Message by message: where each is."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.state = {
            (number, index): "cluster" for number, size in enumerate(sizes) for index in range(size)
        }

    def of(self, number: int, *states: str) -> int:
        return sum(1 << index for index in range(self.sizes[number]) if self.state[number, index] in states)

    def put(self, number: int, bits: int, state: str) -> None:
        for index in range(self.sizes[number]):
            if bits >> index & 1:
                self.state[number, index] = state


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "ack", "ack bits", "back", "back later", "due", "reconnect"]),
        st.integers(0, 3),
        st.integers(0, 31),
    ),
    max_size=60,
)


@given(st.lists(st.integers(1, 5), min_size=4, max_size=4), STEPS)
def test_each_message_is_delivered_exactly_when_nobody_here_has_it(
    sizes: list[int], steps: list[tuple[str, int, int]]
) -> None:
    out, model = Outstanding(counts_here=False), Model(sizes)
    for step, number, bits in steps:
        all_bits = (1 << sizes[number]) - 1
        bits &= all_bits
        place: Any = (5, number)
        known = (row := out.row(place)) is not None and row.left != 0
        if step == "arrive":
            if model.of(number, "done") == all_bits and out.row(place) is None:
                continue  # the cluster has deleted it
            _, wanted = out.arrived(entry(number, sizes[number]), all_bits, 0)
            assert wanted == model.of(number, "cluster")
            model.put(number, wanted, "out")
        elif step == "ack":
            index = bits % sizes[number]
            found = out.acknowledge(place, index)
            assert (found is not None) == known
            if known:
                model.put(number, 1 << index, "done")
        elif step == "ack bits":
            found = out.acknowledge_bits(place, bits)
            if found is not None:
                assert found[0] == bits & model.of(number, "out")
                model.put(number, bits, "done")
        elif step == "reconnect":
            out.all_coming()
        elif step == "due":
            asked = out.due({place: bits})
            assert bool(asked) == bool(bits & model.of(number, "later"))
            model.put(number, bits & model.of(number, "later"), "cluster")
        else:
            taken = out.take_back(place, bits, later=step == "back later")
            assert taken == bits & model.of(number, "out")
            model.put(number, taken, "later" if step == "back later" else "cluster")
        assert out.out == sum(model.of(one, "out").bit_count() for one in range(4))
        row = out.row(place)
        assert row is None or row.coming or row.left == model.of(number, "cluster", "out", "later")


class Asked:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.out = Outstanding(counts_here=False)
        self.asked: list[list[Place]] = []
        self.late: list[tuple[Place, int]] = []
        self.redelivery = Redelivery(
            self.clock, self.out, self.asked.append, lambda place, bits: self.late.append((place, bits))
        )

    def arrive(self, number: int, count: int = 1) -> Place:
        self.out.arrived(Entry(1, number, 0, count, 0, 0, b""), (1 << count) - 1, 0)
        return 1, number

    def refuse(self, place: Place, bits: int, delay_ms: int) -> None:
        self.redelivery.later(place, self.out.take_back(place, bits, later=True), delay_ms)


@pytest.fixture
def asked() -> Asked:
    return Asked()


async def test_those_of_one_moment_are_asked_for_together(asked: Asked) -> None:
    for number in range(3):
        asked.refuse(asked.arrive(number), 1, 100)
    await asked.clock.advance(99)
    await asyncio.sleep(0)
    assert asked.asked == []
    await asked.clock.advance(1)
    await asyncio.sleep(0)
    assert asked.asked == [[(1, 0), (1, 1), (1, 2)]]


async def test_what_was_acknowledged_meanwhile_is_not_asked_for(asked: Asked) -> None:
    place = asked.arrive(1, 2)
    asked.refuse(place, 0b01, 100)
    asked.out.acknowledge(place, 0)
    await asked.clock.advance(100)
    await asyncio.sleep(0)
    assert asked.asked == []


async def test_without_a_delay_it_is_asked_for_in_this_turn(asked: Asked) -> None:
    asked.refuse(asked.arrive(1), 1, 0)
    await asyncio.sleep(0)
    assert asked.asked == [[(1, 1)]]


async def test_what_is_still_out_in_time_is_late(asked: Asked) -> None:
    place = asked.arrive(1, 3)
    row = asked.out.row(place)
    assert row is not None
    asked.redelivery.watch(place, row, 0b111, 1000)
    asked.out.acknowledge(place, 1)
    await asked.clock.advance(1000)
    assert asked.late == [(place, 0b101)]


async def test_a_seek_ends_all_deadlines(asked: Asked) -> None:
    place = asked.arrive(1)
    row = asked.out.row(place)
    assert row is not None
    asked.redelivery.watch(place, row, 1, 1000)
    asked.refuse(asked.arrive(2), 1, 100)
    asked.out.forget()
    asked.redelivery.forget()
    await asked.clock.advance(5000)
    await asyncio.sleep(0)
    assert asked.asked == asked.late == []
