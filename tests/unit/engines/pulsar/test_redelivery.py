"""When messages come again."""

import asyncio

import pytest

from penstock.engines.pulsar.outstanding import Outstanding, Place
from penstock.engines.pulsar.redelivery import Redelivery
from penstock.model.entry import Entry
from penstock.testing.clock import ManualClock


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
