"""The retention times of topics: refuses delayed messages that the cluster would delete before their delivery time."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .policies import CLEANUP, RETENTION_MS

TOPICS_MAX: Final = 10_000  # cached
REFUSED_MS: Final = (
    1_000  # the age of an answer that a message may be refused by: retention may just have been raised
)
UNBOUNDED: Final = -1


class _Known(msgspec.Struct, frozen=True):
    at_ms: int
    retention_ms: int


class RetentionTimes:
    """Retention time by Kafka topic. `configs` fetches a topic's configuration, which is cached for `learned_ms`."""

    def __init__(
        self, configs: Callable[[str], Awaitable[Mapping[str, str]]], clock: Clock, learned_ms: int
    ) -> None:
        self._configs = configs
        self._clock = clock
        self._learned_ms = learned_ms
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._locks: Locks[str] = Locks()

    async def check_delay(self, topic: str, deliver_at: int, publish_time: int) -> None:
        """Raise BAD_PARAMETER unless the topic keeps a record of `publish_time` until `deliver_at` (ms, both).

        Accepts any delay if this server may not see the topic's configuration. Deletion by size (`retention.bytes`) cannot
        be predicted and is not checked. Raises UNAVAILABLE.
        """
        wait_ms = deliver_at - publish_time
        if wait_ms <= 0 or self._keeps(await self._learn(topic, self._learned_ms), wait_ms):
            return
        kept = await self._learn(topic, REFUSED_MS)
        if not self._keeps(kept, wait_ms):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"a delay of {wait_ms} ms is longer than topic {topic} keeps messages: {kept} ms (retention.ms)",
            )

    def _keeps(self, retention_ms: int, wait_ms: int) -> bool:
        return retention_ms == UNBOUNDED or wait_ms <= retention_ms

    async def _learn(self, topic: str, learned_ms: int) -> int:
        """A topic's retention (ms), at most `learned_ms` old."""
        found = self._fresh(topic, learned_ms)
        if found is not None:
            return found
        async with self._locks.hold(topic):
            found = self._fresh(topic, learned_ms)
            if found is None:
                found = await self._ask(topic)
                self._known[topic] = _Known(self._clock.monotonic_ms(), found)
                self._known.move_to_end(topic)
                if len(self._known) > TOPICS_MAX:
                    self._known.popitem(last=False)
        return found

    def _fresh(self, topic: str, learned_ms: int) -> int | None:
        known = self._known.get(topic)
        fresh = known is not None and self._clock.monotonic_ms() - known.at_ms < learned_ms
        return known.retention_ms if known is not None and fresh else None

    async def _ask(self, topic: str) -> int:
        try:
            configs = await self._configs(topic)
        except PenstockError as error:
            if error.kind is not ErrorKind.FORBIDDEN:
                raise
            return UNBOUNDED
        if "delete" not in configs.get(CLEANUP, "delete"):
            return UNBOUNDED
        return max(UNBOUNDED, int(configs.get(RETENTION_MS, UNBOUNDED)))
