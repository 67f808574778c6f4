"""Counters with a rate over the last minute, for `stats`."""

from typing import Final

from penstock.engines.embedded.ports import Clock

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
