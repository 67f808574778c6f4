"""When topics are looked at, so that what they need not keep goes.

A topic is examined when a relevant change marked it, and when the time comes that its last
look foretold. A topic that nothing happens to, or whose policies keep everything, costs nothing.
"""

import logging
from collections import deque
from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.broker.storage_health import STORAGE_KINDS
from penstock.engines.core.topic.retention import Look, look
from penstock.engines.core.topic.topic import Topic
from penstock.engines.registry.policies import Policies
from penstock.engines.subscription import Subscription
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import QuotaAction
from penstock.runtime.clock import Clock, Timer, Timers
from penstock.runtime.tasks import Tasks

from .compactions import Compactions
from .topics import Topics

log = logging.getLogger(__name__)

OPENED_MAX: Final = 100  # unused topics are opened so many at a time, to see what they hold
OPEN_EVERY_MS: Final = 1000
PRODUCERS_EVERY_MS: Final = 600_000  # inactive producers are looked for


class RetentionTask:
    """Applies retention to every topic whose policies do not keep everything."""

    def __init__(
        self,
        policies: Policies,
        topics: Topics,
        compactions: Compactions,
        settings: BrokerSettings,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._policies = policies
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._topics = topics
        self._compactions = compactions
        self._marked: dict[Topic, None] = {}
        self._looks: dict[Topic, Look] = {}  # of each topic that is looked after, the last
        self._unopened: deque[TopicName] = deque()
        self._due = Timers(clock, lambda topic: topic in self._looks)
        self._timer: Timer | None = None
        self._at = 0  # when the timer comes
        self._opening: Timer | None = None
        self._producers: Timer | None = None
        self._running = False
        self._soon = False
        self._closed = False
        policies.on_change(self._changed)

    def start(self) -> None:
        """Begin with the topics that are stored."""
        self._walk([name for name in self._topics.all_names() if not self._policies.in_force(name).keeps_all])
        if self._settings.producer_memory_minutes:
            self._producers = self._clock.call_later(PRODUCERS_EVERY_MS, self._forget_producers)

    def close(self) -> None:
        """Stop the clocks."""
        self._closed = True
        self._due.close()
        for timer in (self._timer, self._opening, self._producers):
            if timer is not None:
                timer.cancel()

    # -- what the broker reports

    async def opened(self, topic: Topic) -> None:
        """A topic is open, with its subscriptions."""
        topic.apply(self._policies.in_force(topic.name))
        self._look_after(topic)

    def _look_after(self, topic: Topic) -> None:
        if topic.bounded:
            self._looks[topic] = Look()
            self.mark(topic, soon=True)
        else:
            self._looks.pop(topic, None)

    async def deleted(self, topic: Topic) -> None:
        """A topic was deleted."""
        self._looks.pop(topic, None)
        self._marked.pop(topic, None)
        topic.backlog.moved()  # wakes publishers that wait for room

    def appended(self, topic: Topic) -> None:
        """Something was appended."""
        last = self._looks.get(topic)
        if last is None:
            return
        if last.lasts_ms is not None:
            lasts, last.lasts_ms = last.lasts_ms, None
            self._foretell(topic, last, lasts, last.timer_at)
        if last.wants_append(topic):
            self.mark(topic)
        quota = topic.policies.size_quota
        if quota.limit >= 0 and quota.action is QuotaAction.EVICT and not topic.backlog.surely_room:
            self.mark(topic, soon=True)  # no publish may come to find that it is beyond

    def moved(self, topic: Topic, subscription: Subscription) -> None:
        """A subscription's cursor moved, or it went."""
        if not subscription.durable:
            return
        topic.backlog.moved()
        last = self._looks.get(topic)
        if last is not None and last.held:
            self.mark(topic)

    def _changed(self, name: TopicName | NamespaceName) -> None:
        """Other policies hold for a topic, or for those of a namespace."""
        if isinstance(name, NamespaceName):
            names = [other for other in self._topics.all_names() if other.namespace_name == name]
            topics = [topic for topic in self._topics.open_topics if topic.name.namespace_name == name]
        else:
            names, topics = (
                [name],
                [topic for topic in self._topics.open_topics if name in (topic.name, topic.name.base)],
            )
        for topic in topics:
            policies = self._policies.in_force(topic.name)
            if policies != topic.policies:
                topic.apply(policies)
                topic.backlog.moved()
                self._look_after(topic)
        known = {topic.name.base for topic in topics}
        self._walk([n for n in names if n not in known and not self._policies.in_force(n).keeps_all])

    # -- looking

    def over_quota(self, topic: Topic) -> None:
        """Schedule the eviction of the slowest subscriptions."""
        self.mark(topic, soon=True)

    def mark(self, topic: Topic, *, soon: bool = False) -> None:
        """Have a topic looked at: with the others in `keep_check_ms`, or soon."""
        self._marked[topic] = None
        self._soon |= soon
        self._arm()

    def _arm(self) -> None:
        delay_ms = 0 if self._soon else self._settings.keep_check_ms
        at = self._clock.monotonic_ms() + delay_ms
        if self._running or self._closed or (self._timer is not None and self._at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = at
        self._timer = self._clock.call_later(delay_ms, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._soon = False
        self._running = True
        self._tasks.spawn(self._run(), "keep topics within their policies")

    async def _run(self) -> None:
        marked, self._marked = self._marked, {}
        try:
            for topic in marked:
                if topic in self._looks and not topic.deleted:
                    await self._look(topic)
        finally:
            self._running = False
            if self._marked:
                self._arm()

    async def look_now(self, topic: Topic) -> None:
        """Delete messages that a topic need not keep, without waiting for the next run."""
        self._begin_compaction(topic, await look(topic))

    def _begin_compaction(self, topic: Topic, found: Look) -> None:
        if found.compact and topic.compaction.status != "RUNNING" and not topic.deleted:
            self._compactions.start(topic)

    async def _look(self, topic: Topic) -> None:
        try:
            found = await look(topic)
            self._begin_compaction(topic, found)
        except PenstockError as error:
            if not topic.deleted:
                level = logging.DEBUG if error.kind in STORAGE_KINDS else logging.WARNING
                log.log(level, "retention of %s: %s", topic.name, error.message)
                self._marked[topic] = None
            return
        except Exception:  # one topic must not keep the others from being looked at
            log.exception("retention of %s failed", topic.name)
            return
        before = self._looks.get(topic)
        if before is None:
            return  # by now its policies keep everything
        self._looks[topic] = found
        if found.due_ms is not None:
            self._foretell(topic, found, found.due_ms - self._clock.now_ms(), before.timer_at)

    def _foretell(self, topic: Topic, last: Look, delay_ms: int, timer_at: int | None) -> None:
        """Come back after `delay_ms`, but not too often; a timer that comes before that does as well."""
        now = self._clock.monotonic_ms()
        at = now + max(self._settings.keep_check_ms, delay_ms)
        if timer_at is not None and now < timer_at <= at:
            last.timer_at = timer_at
            return
        last.timer_at = at
        self._due.at(at, self._fell_due, topic)

    def _fell_due(self, topic: Topic) -> None:
        last = self._looks.get(topic)
        if last is not None and last.timer_at is not None and last.timer_at <= self._clock.monotonic_ms():
            last.timer_at = None
            self.mark(topic, soon=True)

    # -- unused topics

    def _walk(self, names: list[TopicName]) -> None:
        """Open topics, a few at a time, to learn their sizes; retention then covers them."""
        self._unopened.extend(names)
        if self._unopened and self._opening is None and not self._closed:
            self._opening = self._clock.call_later(OPEN_EVERY_MS, self._open_some)

    def _open_some(self) -> None:
        self._tasks.spawn(self._open_next(), "open topics that have policies")

    async def _open_next(self) -> None:
        for _ in range(min(OPENED_MAX, len(self._unopened))):
            name = self._unopened.popleft()
            try:
                await self._topics.all_of(name, create=False)
            except PenstockError as error:
                log.debug("%s was not opened: %s", name, error.message)  # deleted since
        self._opening = None
        self._walk([])

    # -- producers

    def _forget_producers(self) -> None:
        self._producers = self._clock.call_later(PRODUCERS_EVERY_MS, self._forget_producers)
        self._tasks.spawn(self._forget_silent(), "forget silent producers")

    async def _forget_silent(self) -> None:
        before = self._clock.monotonic_ms() - 60_000 * self._settings.producer_memory_minutes
        for topic in self._topics.open_topics:
            attached = {producer.name for producer in topic.producers.values()}
            names = [name for name in topic.sequences.silent_since(before) if name not in attached]
            if names and not topic.deleted:
                try:
                    await topic.forget_producers(names)
                except PenstockError as error:
                    level = logging.DEBUG if error.kind in STORAGE_KINDS else logging.WARNING
                    log.log(level, "producers of %s: %s", topic.name, error.message)
