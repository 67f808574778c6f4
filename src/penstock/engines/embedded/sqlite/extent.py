"""Where a log begins and ends, in entries, offsets and bytes."""

import msgspec

from penstock.engines.embedded.ports import LogState


class Extent(msgspec.Struct, frozen=True, gc=False):
    """From `first_…` up to and without `next_…`. Frozen, so that threads may share one."""

    ledger: int
    first_entry: int = 0
    first_offset: int = 0
    first_byte: int = 0
    next_entry: int = 0
    next_offset: int = 0
    next_byte: int = 0

    def until(self, entry: int, offset: int, byte: int) -> "Extent":
        """The log with another end."""
        return Extent(self.ledger, self.first_entry, self.first_offset, self.first_byte, entry, offset, byte)

    def since(self, entry: int, offset: int, byte: int) -> "Extent":
        """The log with another beginning."""
        return Extent(self.ledger, entry, offset, byte, self.next_entry, self.next_offset, self.next_byte)

    def state(self, producers: dict[str, int]) -> LogState:
        """The log as the core wants to know it."""
        return LogState(
            ledger=self.ledger,
            first_entry=self.first_entry,
            next_entry=self.next_entry,
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            size_bytes=self.next_byte - self.first_byte,
            producers=producers,
        )
