"""Times and their percentiles, in memory that does not grow with their number."""

from array import array
from typing import Final, NamedTuple

_EXACT_BITS: Final = 8  # times below 256 µs are exact; longer ones are known to their first 8 bits: 0.8 %
_STEPS: Final = 1 << (_EXACT_BITS - 1)  # of each further power of two
_POWERS: Final = 29  # up to 2**36 µs, 19 hours
_BUCKETS: Final = 2 * _STEPS + _POWERS * _STEPS

PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)


class Summary(NamedTuple):
    """Milliseconds."""

    mean: float
    percentiles: dict[float, float]
    max: float


class Latencies:
    """Counts times, each to within 0.8 %; the longest is exact."""

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * _BUCKETS))
        self._sum_us = 0
        self.count = 0
        self.max_us = 0

    def record(self, time_us: int) -> None:
        """Count a time; one below 0, of clocks that differ, is 0."""
        time_us = max(0, time_us)
        self._counts[min(_bucket(time_us), _BUCKETS - 1)] += 1
        self._sum_us += time_us
        self.count += 1
        if time_us > self.max_us:
            self.max_us = time_us

    def percentile_us(self, percent: float) -> int:
        """The time that so many percent of the times do not exceed; 0 where there are none."""
        wanted = max(1, -int(-(self.count * percent) // 100))  # rounded up: p99 of two is the second
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return self.max_us if bucket == _BUCKETS - 1 else min(_most(bucket), self.max_us)
        return self.max_us

    def summary(self) -> Summary | None:
        """None where there are no times."""
        if not self.count:
            return None
        found = {percent: self.percentile_us(percent) / 1000 for percent in PERCENTILES}
        return Summary(self._sum_us / self.count / 1000, found, self.max_us / 1000)


def _bucket(time_us: int) -> int:
    shift = max(0, time_us.bit_length() - _EXACT_BITS)
    return (time_us >> shift) + shift * _STEPS


def _most(bucket: int) -> int:
    """The longest time that a bucket counts."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1
