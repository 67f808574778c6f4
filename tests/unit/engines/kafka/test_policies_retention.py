"""Delays beyond the retention of a topic, as the cluster says it."""

import pytest

from penstock.engines.kafka.policies import REFUSED_MS, RetentionTimes
from penstock.model.errors import ErrorKind, PenstockError
from penstock.testing.clock import ManualClock

LEARNED_MS = 5_000


class Cluster:
    """Configurations of topics; counts how often it is asked."""

    def __init__(self, **configs: str) -> None:
        self.found: dict[str, str] | PenstockError = {
            key.replace("_", "."): one for key, one in configs.items()
        }
        self.asked = 0
        self.clock = ManualClock()
        self.times = RetentionTimes(self.configs, self.clock, LEARNED_MS)

    async def configs(self, topic: str) -> dict[str, str]:
        self.asked += 1
        if isinstance(self.found, PenstockError):
            raise self.found
        return self.found

    async def takes(self, delay_ms: int) -> bool:
        now = self.clock.now_ms()
        try:
            await self.times.check_delay("t", now + delay_ms, now)
        except PenstockError as error:
            if error.kind is not ErrorKind.BAD_PARAMETER or str(delay_ms) not in error.message:
                raise
            return False
        return True


async def test_a_delay_up_to_the_retention_is_taken() -> None:
    cluster = Cluster(retention_ms="60000", cleanup_policy="delete")
    assert [await cluster.takes(delay) for delay in (-5, 1, 60_000, 60_001)] == [True, True, True, False]


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": "-1", "cleanup_policy": "delete"},
        {"retention_ms": "1000", "cleanup_policy": "compact"},
        {},
    ],
)
async def test_what_is_kept_for_ever_takes_every_delay(configs: dict[str, str]) -> None:
    assert await Cluster(**configs).takes(1 << 50)


async def test_a_configuration_that_may_not_be_seen_refuses_nothing() -> None:
    cluster = Cluster()
    cluster.found = PenstockError(ErrorKind.FORBIDDEN, "not yours")
    assert await cluster.takes(1 << 50)
    cluster.found = PenstockError(ErrorKind.UNAVAILABLE, "away")
    await cluster.clock.advance(LEARNED_MS)
    with pytest.raises(PenstockError, match="away"):
        await cluster.takes(1 << 50)


async def test_the_cluster_is_asked_again_before_a_refusal() -> None:
    cluster = Cluster(retention_ms="60000")
    assert await cluster.takes(50_000)
    await cluster.clock.advance(REFUSED_MS)
    assert await cluster.takes(50_000)
    assert cluster.asked == 1
    cluster.found = {"retention.ms": "600000"}
    assert await cluster.takes(500_000)
    assert cluster.asked == 2
    for _ in range(10):  # who goes on being refused does not have the cluster asked each time
        assert not await cluster.takes(700_000)
    assert cluster.asked == 2
