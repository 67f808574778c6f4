"""The records that a member of a group holds for its next fetch, and its positions behind the records that fetches returned."""

from collections.abc import Collection, Mapping
from typing import Final

from .record import At, Record

RECORDS_MAX: Final = 2000  # of one fetch: the event loop converts them
HELD_BYTES: Final = 1024 * 1024  # that one member holds, about


class HeldRecords:
    """`positions` are by partition. Of these, `unconfirmed` are new since `confirm`."""

    def __init__(self) -> None:
        self.positions: dict[At, int] = {}
        self._unconfirmed: dict[At, int] = {}
        self._revoked: dict[At, int] = {}  # positions, until partitions are assigned again
        self._records: list[Record] = []

    def __len__(self) -> int:
        return len(self._records)

    @property
    def room(self) -> int:
        """How many more records a fetch may return."""
        return max(0, RECORDS_MAX - len(self._records))

    @property
    def full(self) -> bool:
        return self.reaches(HELD_BYTES)

    def reaches(self, bytes_min: int) -> bool:
        """Whether there are records of so many bytes, or as many as it holds."""
        if not self._records or not bytes_min:
            return bool(self._records)
        return not self.room or sum(map(_size, self._records)) >= min(bytes_min, HELD_BYTES)

    def add(self, record: Record) -> None:
        self._records.append(record)

    def peek(self, bytes_max: int) -> list[Record]:
        """The records that follow, within `bytes_max` of keys, values and headers, but at least one if any is here."""
        count = size = 0
        for record in self._records:
            size += _size(record)
            if count and (size > bytes_max or count == RECORDS_MAX):
                break
            count += 1
        return self._records[:count]

    def take(self, count: int) -> None:
        """Move the positions behind the first records."""
        ends = {place_of(record): record.offset() + 1 for record in self._records[:count]}
        del self._records[:count]
        self.positions |= ends
        self._unconfirmed |= ends

    def confirm(self) -> Mapping[At, int]:
        """The positions that moved since the last call."""
        moved, self._unconfirmed = self._unconfirmed, {}
        return moved

    def clear(self) -> None:
        """Forget all records; positions stay."""
        self._records.clear()

    def forget(self, places: Collection[At]) -> None:
        """Forget partitions, with their records and positions."""
        for place in places:
            self.positions.pop(place, None)
            self._unconfirmed.pop(place, None)
        self._records = [record for record in self._records if place_of(record) not in places]

    # -- rebalances

    def revoke(self, places: Collection[At]) -> None:
        """Forget partitions, and remember their positions until the rebalance ends."""
        self._revoked = {place: self.positions[place] for place in places if place in self.positions}
        self.forget(places)

    def revoked(self, places: Collection[At]) -> dict[At, int]:
        """The remembered positions of partitions, which are forgotten now."""
        found, self._revoked = self._revoked, {}
        return {place: offset for place, offset in found.items() if place in places}

    def restore(self, place: At, offset: int) -> None:
        """Go on at a position that fetches had reached."""
        self.positions[place] = self._unconfirmed[place] = offset


def place_of(record: Record) -> At:
    """The partition of a record."""
    return record.topic(), record.partition()


def _size(record: Record) -> int:
    """Bytes of key, value and headers."""
    size = len(record) + len(record.key() or b"")
    headers = record.headers()
    if headers:
        size += sum([len(name) + len(value or b"") for name, value in headers])
    return size
