"""Acknowledgements that the next owner of a partition is to get."""

import pytest

from penstock.engines.attached import acknowledgements as module
from penstock.engines.attached.acknowledgements import Unstored


def given(of: Unstored) -> tuple[dict[tuple[int, int], int], tuple[tuple[int, int], int] | None]:
    """What another one gets: entries with their open messages, and up to where all is done."""
    other = Unstored()
    of.give_to(other)
    up_to = other._up_to
    return {place: entry.open_bits for place, entry in other._entries.items()}, up_to and up_to[1:]


def test_those_that_are_stored_are_forgotten() -> None:
    acks = Unstored()
    acks.acknowledge_part((1, 1), 0b110)
    acks.acknowledge_up_to((1, 0))
    number = acks.number
    acks.acknowledge_part((1, 1), 0b011)
    acks.acknowledge([(1, 2), (1, 3)])
    acks.acknowledge_up_to((1, 0), 0b10)  # less than before
    assert given(acks) == ({(1, 1): 0b010, (1, 2): 0, (1, 3): 0}, ((1, 0), 0))
    acks.stored(number)
    assert given(acks) == ({(1, 1): 0b010, (1, 2): 0, (1, 3): 0}, ((1, 0), 0))
    acks.stored(number + 2)
    assert given(acks) == ({(1, 3): 0}, ((1, 0), 0))
    acks.acknowledge_up_to((1, 2), 0b10)
    assert given(acks)[1] == ((1, 2), 0b10)
    acks.clear()
    assert not acks
    assert given(acks) == ({}, None)


def test_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSTORED_MAX", 2)
    acks = Unstored()
    acks.acknowledge([(1, 1), (1, 2)])
    acks.acknowledge_part((1, 2), 0)
    assert not acks.overrun
    acks.acknowledge([(1, 3), (1, 4)])
    acks.acknowledge_up_to((1, 5))
    assert acks.overrun
    assert acks
    assert given(acks) == ({}, None)
    acks.stored(acks.number)
    assert not acks
