"""Which partition a message goes to."""

from __future__ import annotations

import random
from typing import Final

from penstock.client.enums import PartitionsRoutingMode
from penstock.model.hashing import java_string_hash

from .batch import Sending

NEVER: Final = float("-inf")

# The system's: the state of the `random` module belongs to the application, and forked processes share theirs.
_RANDOM: Final = random.SystemRandom()


class Router:
    """Keys by their hash, as Pulsar's clients compute it; the others round robin, or all to one partition.

    With batching, round robin stays with a partition for as long as a batch may: else every message would
    be a batch of its own.
    """

    def __init__(self, mode: PartitionsRoutingMode, sending: Sending) -> None:
        self._single = mode is PartitionsRoutingMode.UseSinglePartition
        self._sending = sending
        self._cursor = _RANDOM.randrange(1 << 31)
        self._since = NEVER
        self._count = 0

    def choose(self, key: str | None, partitions: int, now: float) -> int:
        """The number of the partition."""
        if key:
            return java_string_hash(key) % partitions
        if self._single:
            return self._cursor % partitions
        sending = self._sending
        self._count += 1
        if (
            not sending.batching
            or self._count > sending.batch_count_max
            or now - self._since >= sending.batch_delay_s
        ):
            self._cursor += 1
            self._since, self._count = now, 1
        return self._cursor % partitions
