"""What is out: which messages of which entry are with which consumer."""

from penstock.model.bits import bits_of

from .receiver import Receiver


class Pending:
    """Part of an entry that a consumer has and has not answered. `hashes`: one a message, or one for all."""

    __slots__ = ("consumer", "count", "entry_id", "hashes", "mask", "offset")

    def __init__(
        self,
        consumer: Receiver,
        entry_id: int,
        offset: int,
        count: int,
        mask: int,
        hashes: int | list[int] | None,
    ) -> None:
        self.consumer = consumer
        self.entry_id = entry_id
        self.offset = offset
        self.count = count
        self.mask = mask
        self.hashes = hashes

    def hash_counts(self, mask: int) -> dict[int, int]:
        """How many of the messages in `mask` have which hash."""
        if isinstance(self.hashes, int):
            return {self.hashes: mask.bit_count()}
        counts: dict[int, int] = {}
        if self.hashes is not None:
            for index in bits_of(mask):
                counts[self.hashes[index]] = counts.get(self.hashes[index], 0) + 1
        return counts


class PendingTable:
    """All that is out of one subscription, by entry."""

    def __init__(self) -> None:
        self._by_entry: dict[int, list[Pending]] = {}

    def add(self, part: Pending) -> None:
        held = self._by_entry.get(part.entry_id)
        if held is None:
            self._by_entry[part.entry_id] = [part]
        else:
            held.append(part)

    def of(self, entry_id: int) -> list[Pending]:
        """The parts of an entry that are out."""
        return self._by_entry.get(entry_id, [])

    def drop(self, part: Pending) -> None:
        held = self._by_entry[part.entry_id]
        if len(held) == 1:
            del self._by_entry[part.entry_id]
        else:
            held.remove(part)

    def mask(self, entry_id: int) -> int:
        """Which messages of an entry are out."""
        held = self._by_entry.get(entry_id)
        if held is None:
            return 0
        found = 0
        for part in held:
            found |= part.mask
        return found

    def with_consumer(self, consumer: Receiver) -> list[Pending]:
        """What one consumer has, in the order of the log."""
        found = [p for parts in self._by_entry.values() for p in parts if p.consumer is consumer]
        return sorted(found, key=lambda p: p.entry_id)

    def all(self) -> list[Pending]:
        return [p for parts in self._by_entry.values() for p in parts]

    @property
    def messages(self) -> int:
        return sum(p.mask.bit_count() for parts in self._by_entry.values() for p in parts)

    def clear(self) -> None:
        self._by_entry.clear()
