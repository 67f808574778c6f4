"""Counters of the process: rates over the last minute, and histograms."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from .clock import Clock

LATENCY_MS: Final = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)  # the buckets of Pulsar's storage_write_latency
# Seconds: from a commit on a fast disk to a request that waits for minutes.
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_BUCKETS: Final = 6
_BUCKET_MS: Final = 10_000


class Rate:
    """A total of messages and bytes, and what of them fell into the last minute."""

    __slots__ = ("_clock", "_started", "_window", "bytes", "messages")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic_ms()
        self.messages = 0
        self.bytes = 0
        self._window: dict[int, tuple[int, int]] = {}  # totals when a bucket began

    def add(self, messages: int, size: int) -> None:
        bucket = self._clock.monotonic_ms() // _BUCKET_MS
        if bucket not in self._window:
            self._roll(bucket)
        self.messages += messages
        self.bytes += size

    def _roll(self, bucket: int) -> None:
        for old in [b for b in self._window if b <= bucket - _BUCKETS]:
            del self._window[old]
        self._window[bucket] = (self.messages, self.bytes)

    def per_second(self) -> tuple[float, float]:
        """Messages and bytes a second over the last minute, or since the start."""
        now = self._clock.monotonic_ms()
        bucket = now // _BUCKET_MS
        recent = [b for b in self._window if b > bucket - _BUCKETS]
        if not recent:
            return 0.0, 0.0
        first = min(recent)
        messages, size = self._window[first]
        seconds = max(1.0, (now - max(self._started, first * _BUCKET_MS)) / 1000)
        return (self.messages - messages) / seconds, (self.bytes - size) / seconds


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


class Writes:
    """What a store's writer did: commits by their seconds, what they carried, and what waits."""

    __slots__ = ("answered", "commits", "received")

    def __init__(self) -> None:
        self.commits = Histogram(SECONDS)
        self.received = 0  # calls handed over
        self.answered = 0  # calls completed

    @property
    def waiting(self) -> int:
        return self.received - self.answered
