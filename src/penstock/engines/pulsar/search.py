"""From an offset to the entry that holds it, in a log whose brokers number entries but know no index of the numbers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from penstock.client.entries.arrived import Place
from penstock.model.entry import Entry

from .sizes import ledger_sizes

STEPS_MAX: Final = 64  # each is one entry read; interpolation mostly needs two or three


async def find_offset(
    offset: int, stats: Mapping[str, Any], read: Callable[[Place], Awaitable[Entry | None]]
) -> Place | None:
    """Where to begin to read so that `offset` is met: the entry that holds it, or one a little before it.

    `stats` is the topic's internalStats, which counts the entries of each ledger; None: begin with the earliest.
    """
    ledgers = ledgers_of(stats)
    total = sum(count for _, count in ledgers)
    low, high = (
        0,
        total - 1,
    )  # the entry is not before `low`, as an ordinal over all ledgers, and not after `high`
    before: Place | None = None
    low_offset, high_offset = -1, -1
    for _ in range(STEPS_MAX):
        if low > high:
            break
        guess = (low + high) // 2
        if low_offset >= 0 and high_offset > low_offset:
            share = (offset - low_offset) / (high_offset - low_offset)
            guess = min(high, max(low, low + int(share * (high - low))))
        place = place_at(ledgers, guess)
        entry = await read(place)
        if entry is None:  # trimmed since, or a marker that no reader gets
            low = guess + 1
            continue
        if entry.offset <= offset < entry.end:
            return place
        if entry.end <= offset:
            before = place
            low, low_offset = guess + 1, entry.end
        else:
            high, high_offset = guess - 1, entry.offset
    return before


def ledgers_of(stats: Mapping[str, Any]) -> Sequence[tuple[int, int]]:
    """The ledgers with their numbers of entries, in order."""
    return [(one.ledger, one.entries) for one in ledger_sizes(stats)]


def place_at(ledgers: Sequence[tuple[int, int]], ordinal: int) -> Place:
    """The entry with a number over all ledgers, from 0."""
    for ledger, count in ledgers:
        if ordinal < count:
            return ledger, ordinal
        ordinal -= count
    raise IndexError(ordinal)
