"""Positions that the cluster alone knows."""

from typing import Any

import pytest

from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.log import KafkaLog
from penstock.engines.kafka.naming import Place
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock


class Fetcher:
    """A record with the timestamp 5,000 at offset 3, and none after it."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def at_time(self, place: At, time_ms: int) -> int:
        self.asked.append(time_ms)
        return 3 if time_ms <= 5_000 else -1


@pytest.mark.parametrize(
    ("time_ms", "asked", "offset"),
    [(5_000, 5_000, 3), (-(2**80), 0, 3), (5_001, 5_001, 4), (2**80, 2**63 - 1, 4)],
)
async def test_a_time_after_this_servers_clock_is_asked_for_too(
    time_ms: int, asked: int, offset: int
) -> None:
    fetcher: Any = Fetcher()
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, ManualClock(1_000))
    log.next_offset = 4
    assert await log.offset_at_time(time_ms) == offset
    assert fetcher.asked == [asked]
