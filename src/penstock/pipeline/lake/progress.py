"""What an archive or a replay tells of itself."""

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was committed. `lag`: messages that are still to come, as far as is known."""

    batch: int
    rows: int
    rows_total: int
    lag: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second of this batch."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Report(msgspec.Struct):
    """What was done in all."""

    batches: int = 0
    rows: int = 0
