"""Acknowledgements of one consumer that are not known to be durable, so that the next owner of the partition can get them again."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Place

UNSTORED_MAX: Final = 10_000  # entries


class _Entry(NamedTuple):
    number: int  # of the last acknowledgement
    open_bits: int  # the messages that are not acknowledged


class Unstored:
    """Those of one entry are kept as one. With more than UNSTORED_MAX entries it is `overrun`, and keeps none until it is cleared."""

    def __init__(self) -> None:
        self.number = 0  # of the last acknowledgement
        self.overrun = False
        self._entries: dict[Place, _Entry] = {}  # in the order of the last acknowledgements
        self._up_to: tuple[int, Place, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._entries) or self._up_to is not None or self.overrun

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, place: Place, open_bits: int = 0) -> None:
        """All messages of an entry but those in `open_bits` are done."""
        self.number += 1
        known = self._entries.pop(place, None)
        if known is not None:
            open_bits &= known.open_bits
        elif len(self._entries) >= UNSTORED_MAX:
            self._entries.clear()
            self._up_to = None
            self.overrun = True
        if not self.overrun:
            self._entries[place] = _Entry(self.number, open_bits)

    def add_up_to(self, place: Place, open_bits: int = 0) -> None:
        """All entries before `place` are done, and that one but for the messages in `open_bits`."""
        self.number += 1
        if self.overrun:
            return
        if self._up_to is not None:
            _, known, bits = self._up_to
            if known > place:
                place, open_bits = known, bits
            elif known == place:
                open_bits &= bits
        self._up_to = (self.number, place, open_bits)

    def stored(self, number: int) -> None:
        """All acknowledgements up to the one of a number are durable."""
        done: list[Place] = []
        for place, entry in self._entries.items():
            if entry.number > number:
                break
            done.append(place)
        for place in done:
            del self._entries[place]
        if self._up_to is not None and self._up_to[0] <= number:
            self._up_to = None
        if number == self.number:
            self.overrun = False

    def clear(self) -> None:
        """None of them matters any more."""
        self.stored(self.number)

    def give_to(self, to: AckSink) -> None:
        """Acknowledge all of them over another link."""
        if self._up_to is not None:
            to.acknowledge_up_to(self._up_to[1], self._up_to[2])
        whole = [place for place, entry in self._entries.items() if not entry.open_bits]
        if whole:
            to.acknowledge(whole)
        for place, entry in self._entries.items():
            if entry.open_bits:
                to.acknowledge_part(place, entry.open_bits)

    # -- as an `AckSink`

    def acknowledge(self, places: Iterable[Place]) -> None:
        for place in places:
            self.add(place)

    acknowledge_part = add
    acknowledge_up_to = add_up_to
