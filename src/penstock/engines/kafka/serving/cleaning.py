"""Removes the cursors of topics that were deleted while no process had them open, and so learned of it."""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.engines.kafka.driver.admin import Described, KafkaAdmin
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.state import CursorKey
from penstock.model.errors import PenstockError
from penstock.runtime.clock import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 30.0  # between two looks
TOPICS_MAX: Final = 100  # of a look
GRACE_MS: Final = 600_000  # for which a topic has to be missing at every check


class CursorCleaning:
    """Looks at the cursors of the slots that this process owns, some topics at a time.

    A topic counts as missing if the cluster says so. If its name is there again, its cursors stay: they belong to another topic, do
    not fit, and begin at its first message. `is_open` says whether a cursor is in use here.
    """

    def __init__(
        self, cursors: Cursors, admin: KafkaAdmin, clock: Clock, is_open: Callable[[CursorKey], bool]
    ) -> None:
        self.removed = 0  # cursors, since the start
        self._cursors = cursors
        self._admin = admin
        self._clock = clock
        self._is_open = is_open
        self._missing: dict[str, int] = {}  # topics, and since when (monotonic ms)
        self._last = ""  # the last topic that was looked at

    async def look(self) -> Sequence[str]:
        """Look at the next topics, and return those that exist. Raises UNAVAILABLE, what the cluster refuses, and Replaced if a slot
        was lost during that."""
        by_topic = self._by_topic()
        names = sorted(by_topic)
        for gone in self._missing.keys() - by_topic.keys():
            del self._missing[gone]
        start = bisect_right(names, self._last)
        wanted = (names[start:] + names[:start])[:TOPICS_MAX]
        if not wanted:
            return ()
        self._last = wanted[-1]
        described = await self._admin.describe_all(wanted)
        for topic, found in described.items():
            await self._judge(topic, found, by_topic[topic])
        return [topic for topic, found in described.items() if found is not None]

    def _by_topic(self) -> Mapping[str, list[CursorKey]]:
        found: defaultdict[str, list[CursorKey]] = defaultdict(list)
        for slot in list(self._cursors.owned):
            try:
                keys = self._cursors.load(slot)
            except PenstockError:  # of a newer format
                continue
            for key in keys:
                found[key.topic].append(key)
        return found

    async def _judge(self, topic: str, found: Described | None, keys: Sequence[CursorKey]) -> None:
        gone = [key for key in keys if found is None or key.partition >= found.partitions]
        if not gone:
            self._missing.pop(topic, None)
            return
        now = self._clock.monotonic_ms()
        if now - self._missing.setdefault(topic, now) < GRACE_MS:
            return
        unused = [key for key in gone if not self._is_open(key)]
        removed = await self._cursors.delete_all(unused)
        if removed:
            self.removed += removed
            extra = {"topic": topic, "cursors": removed}
            log.info("the cursors of a topic that no longer exists were removed", extra=extra)
