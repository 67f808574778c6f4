"""Positions that the cluster alone knows."""

from typing import Any

import pytest
from tests.unit.engines.kafka.test_records import Read

from penstock.engines.kafka.driver.reader import Found
from penstock.engines.kafka.driver.record import At, NewRecord
from penstock.engines.kafka.log import KafkaLog
from penstock.engines.kafka.naming import Place
from penstock.model.entry import Entry, RecordRun
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


async def test_records_are_read_in_runs_if_they_say_nothing_else() -> None:
    class Reads:
        """Records without headers, and then one with a property."""

        async def read(self, place: At, offset: int, entries_max: int, bytes_max: int, until: int) -> Found:
            some = [("p", b"1")] if offset == 2 else [("penstock-schema-version", b"3")] if offset else None
            return Found([Read(offset, 7, NewRecord(b"v", b"k", some))], -1)

    reads: Any = Reads()
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), reads, ManualClock(1_000))
    log.next_offset = 3
    assert await log.read_runs(0, 10) == [RecordRun(log.ledger, 0, 0, [7], [None], [b"k"], [b"v"])]
    assert await log.read_runs(1, 10) == [RecordRun(log.ledger, 1, 1, [7], [3], [b"k"], [b"v"])]
    (entry,) = await log.read_runs(2, 10)
    assert isinstance(entry, Entry)
    assert await log.read(2, 10) == [entry]
    assert await log.read_runs(3, 10) == []
