"""How often a value fell into which bucket."""

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts of values up to each of `bounds`, ascending, and of those beyond the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0  # the sum of all values

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, other: "Histogram") -> None:
        """Count what another of the same bounds has counted."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


# Seconds: from a commit on a fast disk to a request that waits for minutes.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class Writes:
    """What a store's writer did: commits by their seconds, what they carried, and what waits."""

    __slots__ = ("answered", "commits", "owed")

    def __init__(self) -> None:
        self.commits = Histogram(SECONDS)
        self.owed = 0  # calls handed over
        self.answered = 0  # calls completed

    @property
    def waiting(self) -> int:
        return self.owed - self.answered
