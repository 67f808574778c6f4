"""How many bytes lie between two places of a log. The cluster counts entries and bytes of each ledger; within one, sizes are
taken for even. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.client.entries.arrived import Place


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
