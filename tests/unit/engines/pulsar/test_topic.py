"""Positions that the cluster alone knows."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.pulsar.topic import PulsarTopic
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.model.target import Target
from penstock.testing.clock import ManualClock


class Admin:
    """An entry with the publish time 5,000 in ledger 7, the last one."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, target: Target, *, missing: ErrorKind) -> dict[str, int]:
        self.asked.append(target.segments[-1])
        return {"ledgerId": 7, "entryId": 0 if int(target.segments[-1]) <= 5_000 else 1}


@pytest.mark.parametrize(
    ("time_ms", "asked", "offset"),
    [(5_000, "5000", 3), (-(2**80), "0", 3), (5_001, "5001", 4), (2**80, str(2**63 - 1), 4)],
)
async def test_a_time_after_this_servers_clock_is_asked_for_too(
    time_ms: int, asked: str, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin()
    cluster: Any = SimpleNamespace(numbered=True, admin=admin)
    policies: Any = None
    log = PulsarTopic(TopicName.parse("a"), cluster, ManualClock(1_000), policies)
    log._last, log.next_offset = (7, 0), 4

    async def entry_at_place(place: tuple[int, int], *, exact: bool) -> Any:
        return SimpleNamespace(offset=3)

    monkeypatch.setattr(log, "entry_at_place", entry_at_place)
    assert await log.offset_at_time(time_ms) == offset
    assert admin.asked == [asked]
