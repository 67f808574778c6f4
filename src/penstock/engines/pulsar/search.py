"""From an offset to the entry that holds it, in a log whose brokers number entries but know no index of the numbers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.client.entries.arrived import Place
from penstock.model.entry import Entry

STEPS_MAX: Final = 64  # each is one entry read; interpolation mostly needs two or three


class LedgerSize(msgspec.Struct, frozen=True):
    """A ledger, how many entries it has, and how many bytes they take."""

    ledger: int
    entries: int
    bytes: int

    def bytes_from(self, entry: int) -> int:
        """About how many bytes lie from an entry on."""
        return self.bytes * max(0, self.entries - entry) // self.entries


def ledger_sizes(stats: Mapping[str, Any]) -> Sequence[LedgerSize]:
    """The ledgers that have entries, in order, from a topic's `internalStats`; the one that is written is counted apart."""
    found = [
        LedgerSize(int(one["ledgerId"]), int(one["entries"]), int(one.get("size", 0)))
        for one in stats.get("ledgers", ())
    ]
    if found and not found[-1].entries:
        entries, size = int(stats.get("currentLedgerEntries", 0)), int(stats.get("currentLedgerSize", 0))
        found[-1] = LedgerSize(found[-1].ledger, entries, size)
    return [one for one in found if one.entries > 0]


def bytes_from(sizes: Sequence[LedgerSize], place: Place) -> int:
    """About how many bytes lie from the entry at a place up to the end."""
    ledger, entry = place
    return sum(
        one.bytes if one.ledger > ledger else one.bytes_from(entry) for one in sizes if one.ledger >= ledger
    )


def place_with(sizes: Sequence[LedgerSize], size_bytes: int) -> Place | None:
    """The first entry with at most about `size_bytes` in itself and all after it; None without one."""
    found: Place | None = None
    left = size_bytes
    for one in reversed(sizes):
        if one.bytes > left:
            entry = one.entries - one.entries * left // one.bytes
            return (one.ledger, entry) if entry < one.entries else found
        left -= one.bytes
        found = one.ledger, 0
    return found


async def find_offset(
    offset: int, stats: Mapping[str, Any], read: Callable[[Place], Awaitable[Entry | None]]
) -> Place | None:
    """The position to read from to find `offset`: the entry that holds it, or one a little before it.

    `stats` is the topic's internalStats, which counts the entries of each ledger; None: begin with the earliest.
    """
    ledgers = ledgers_of(stats)
    total = sum(count for _, count in ledgers)
    # the entry is not before `low`, as an ordinal over all ledgers, and not after `high`
    low, high = (0, total - 1)
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
