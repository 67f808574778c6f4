"""Shows Kafka's tools the positions of subscriptions, as committed offsets of consumer groups without members.

Nothing is read from these groups, and no acknowledgement waits for them. Each commit takes a separate client: librdkafka 2.16
aborts the process when an administrator's request for commits meets a broker that was restarted.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from penstock.engines.kafka.driver.groups import KafkaGroups
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.state import CursorKey
from penstock.model.errors import ErrorKind, PenstockError

log = logging.getLogger(__name__)

MARKER: Final = "penstock:"  # begins the names of these groups, after engine.group_prefix
SHOW_S: Final = 5.0  # between two commits of one group, as consumers of Kafka commit by default
PAUSE_S: Final = 0.1  # between two commits of this process, at least
PAUSE_MAX_S: Final = 1.0
PAUSES: Final = (
    9  # times as long as the commit before took: it has its own client, which costs more on busy machines
)
REFUSED_S: Final = 60.0  # until a group is tried again that is in use, or may not be used
REFRESH_S: Final = 3600.0  # until all marks are committed again: the brokers let commits expire

Name = tuple[str, str]  # of Kafka's topic and of the subscription


def shown_group(prefix: str, topic: str, subscription: str) -> str:
    """The group that shows a subscription. `topic` is Kafka's name, in which a colon is not allowed."""
    return f"{prefix}{MARKER}{topic}:{subscription}"


class ShownMarks:
    """Commits the marks of the cursors that this process owns, as they change. `prefix` begins the names of groups; `clock` is
    monotonic, in seconds."""

    def __init__(
        self, cursors: Cursors, groups: KafkaGroups, prefix: str, clock: Callable[[], float]
    ) -> None:
        self._cursors = cursors
        self._groups = groups
        self._prefix = prefix
        self._clock = clock
        self._changed: defaultdict[Name, set[int]] = defaultdict(set)  # partitions
        self._stale: dict[Name, set[int]] = {}  # partitions that may be shown wrong
        self._first: Mapping[Name, set[int]] = self._stale
        self._second: Mapping[Name, set[int]] = self._changed
        self._shown: dict[CursorKey, int] = {}
        self._due: dict[Name, float] = {}  # groups that are not committed before
        self._refused_until = 0.0  # before that no group may be used
        self._refused = False  # and that was logged
        self._refreshed = clock()
        self._wake = asyncio.Event()
        cursors.on_saved.append(self._saved)

    def _saved(self, keys: Iterable[CursorKey]) -> None:
        """Cursors of this process were saved, or deleted."""
        for key in keys:
            self._changed[key.topic, key.subscription].add(key.partition)
        self._wake.set()

    def refresh(self, slots: Collection[int]) -> None:
        """Commit the marks of slots, whether they changed or not: other processes had them, or the commits may expire."""
        for key in self._cursors.state.keys(slots):
            self._shown.pop(key, None)
            self._stale.setdefault((key.topic, key.subscription), set()).add(key.partition)
        self._wake.set()

    async def run(self) -> None:
        """Show marks until cancelled."""
        while True:
            if self._clock() - self._refreshed > REFRESH_S:
                self._refreshed = self._clock()
                self.refresh(list(self._cursors.owned))
            wait_s = await self.show_next()
            if wait_s is not None:
                await asyncio.sleep(wait_s)
                continue
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), REFRESH_S)
            except TimeoutError:
                pass

    async def show_next(self) -> float | None:
        """Commit for one group; returns the seconds until this can be called again, None: nothing waits."""
        now = self._clock()
        if now < self._refused_until:
            return self._refused_until - now
        name = self._next(now)
        if name is None:
            if not self._changed and not self._stale:
                return None
            every = [*self._changed, *self._stale]
            return max(PAUSE_S, min(self._due.get(one, now) for one in every) - now)
        partitions = self._changed.pop(name, set()) | self._stale.pop(name, set())
        try:
            done = await self._show(name, partitions)
        except PenstockError as error:
            self._failed(name, partitions, error)
            return PAUSE_S
        if not done:
            return 0.0
        self._refused = False
        self._due[name] = now + SHOW_S
        return min(max(PAUSE_S, PAUSES * (self._clock() - now)), PAUSE_MAX_S)

    def _next(self, now: float) -> Name | None:
        self._due = {name: due for name, due in self._due.items() if due > now}
        # In turns: cursors that change all the time must not hold up those that may be shown wrong.
        self._first, self._second = self._second, self._first
        for waiting in (self._first, self._second):
            for name in waiting:
                if name not in self._due:
                    return name
        return None

    async def _show(self, name: Name, partitions: Collection[int]) -> bool:
        """Commit new positions; returns whether there were any."""
        topic, subscription = name
        marks: dict[CursorKey, int] = {}
        gone = False
        for partition in partitions:
            key = CursorKey(topic, partition, subscription)
            slot = self._cursors.slot(topic, partition)
            if slot not in self._cursors.owned:  # the next owner shows it
                self._shown.pop(key, None)
                continue
            stored = self._cursors.load(slot).get(key)
            if stored is None:
                self._shown.pop(key, None)
                gone = True
            elif self._shown.get(key) != stored.mark:
                marks[key] = stored.mark
        group = shown_group(self._prefix, topic, subscription)
        if marks:
            await self._groups.commit(group, {(topic, key.partition): mark for key, mark in marks.items()})
            self._shown |= marks
        elif gone and not self._cursors.state.exists(topic, subscription):
            await self._delete(group)
        return bool(marks) or gone

    async def _delete(self, group: str) -> None:
        try:
            await self._groups.delete(group)
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                raise

    def _failed(self, name: Name, partitions: set[int], error: PenstockError) -> None:
        if error.kind is ErrorKind.TOPIC_NOT_FOUND:
            return  # Kafka deletes the commits of deleted topics itself
        self._stale.setdefault(name, set()).update(partitions)
        extra = {"group": shown_group(self._prefix, *name), "reason": error.message}
        now = self._clock()
        if error.kind is ErrorKind.FORBIDDEN:
            self._refused_until = now + REFUSED_S
            if not self._refused:
                self._refused = True
                log.warning("positions of subscriptions are not shown to Kafka's tools", extra=extra)
        elif error.kind is ErrorKind.SUBSCRIPTION_BUSY:
            self._due[name] = now + REFUSED_S
            log.info("another program uses the group that shows a subscription", extra=extra)
        else:
            self._due[name] = now + SHOW_S
            log.info("the position of a subscription is not shown now", extra=extra)
