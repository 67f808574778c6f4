"""One look at a topic: messages expire, backlogs beyond their quota are cut, and entries go that nothing holds.

What every durable subscription has acknowledged goes once it is older, or the topic larger, than retention says,
oldest first. Subscriptions that are not durable hold nothing: they are moved on.
"""

from dataclasses import dataclass
from typing import Final

from penstock.engines.subscription import Subscription
from penstock.model.entry import Entry
from penstock.model.policy import QuotaAction

from .topic import Topic

EVICTED_TO: Final = 0.9  # of the quota, as Pulsar does: else every append would evict again
_MB: Final = 1 << 20


@dataclass(slots=True)
class Look:
    """What a look found out about the next one."""

    due_ms: int | None = None  # wall clock: then something will have to go, if nothing else happens
    compact: bool = False  # a compaction is due now
    compact_at: int | None = None  # bytes appended to the topic: then it is due for compaction
    held: bool = False  # what should go is not acknowledged by all
    lasts_ms: int | None = None  # the next append expires after this, and no timer is set for it
    timer_at: int | None = None  # monotonic clock: when the retention task comes back

    def wants_append(self, topic: Topic) -> bool:
        """Whether the topic has grown so large that another look is worth while."""
        if self.compact_at is not None and self.compact_at <= topic.rate_in.bytes:
            return True
        return 0 <= topic.policies.retention.mb * _MB < topic.size_bytes and not self.held


async def look(topic: Topic) -> Look:
    """Delete what has to go now."""
    found = Look()
    await _weigh(topic, found)
    if (ttl_s := topic.policies.message_ttl_s) > 0:
        await expire(list(topic.subscriptions.values()), topic.clock.now_ms() - 1000 * ttl_s)
    await _evict(topic)
    await _trim(topic, found)
    await _foresee(topic, found)
    return found


async def _weigh(topic: Topic, found: Look) -> None:
    """Find out whether the topic has grown by more than the threshold since it was compacted last."""
    threshold = topic.policies.compaction_threshold
    if threshold <= 0 or topic.compaction.status == "RUNNING":
        return
    kept = topic.compaction.kept
    since = topic.first_offset if kept is None else max(topic.first_offset, kept.horizon)
    appended = topic.rate_in.bytes
    size = 0
    if since < topic.next_offset:
        size = await topic.size_since(await topic.entry_at(since))
    if size > threshold:
        found.compact, size = True, 0
    found.compact_at = appended + threshold - size + 1


async def expire(subscriptions: list[Subscription], before_ms: int) -> None:
    """Expire messages published before a time (ms), on subscriptions of one topic: they count as acknowledged."""
    lagging = [s for s in subscriptions if s.backlog and not s.deleted]
    if lagging:
        offset = await lagging[0].topic.offset_at_time(before_ms)
        for subscription in lagging:
            if subscription.cursor.mark < offset:
                subscription.skip(offset)


async def _evict(topic: Topic) -> None:
    """Evict the backlog of the slowest subscriptions, if the quota says so."""
    policies = topic.policies
    if QuotaAction.EVICT not in (policies.size_quota.action, policies.age_quota.action):
        return
    durable = [s for s in topic.subscriptions.values() if s.durable]
    size, age = policies.size_quota, policies.age_quota
    if age.limit >= 0 and age.action is QuotaAction.EVICT:
        await expire(durable, topic.clock.now_ms() - 1000 * age.limit)
    if size.limit >= 0 and size.action is QuotaAction.EVICT:
        measured = await topic.backlog.measure()
        if measured.bytes >= size.limit and not measured.empty:
            kept = await topic.store.find_size(topic.ledger, int(size.limit * EVICTED_TO))
            offset = topic.next_offset if kept is None else kept.offset
            for subscription in durable:
                if subscription.cursor.mark < offset:
                    subscription.skip(offset)
            topic.backlog.forget()


async def _trim(topic: Topic, found: Look) -> None:
    """Delete what nothing holds and retention does not keep."""
    policies = topic.policies
    if policies.retains_all:
        return
    minutes, mb = policies.retention.minutes, policies.retention.mb
    # The first entry that stays by each rule; what one of them does not keep is deleted.
    stays: list[int] = [topic.first_entry]
    if minutes >= 0:
        since = max(0, topic.clock.now_ms() - 60_000 * minutes)
        young = await topic.store.find_time(topic.ledger, since)
        stays.append(_first(topic, young))
    if mb >= 0 and topic.size_bytes > mb * _MB:
        fits = await topic.store.find_size(topic.ledger, mb * _MB)
        stays.append(_first(topic, fits))
    wanted = max(stays)
    if wanted > topic.first_entry:
        allowed = await topic.entry_at(held_from(topic))
        found.held = allowed < wanted
        await topic.trim(min(allowed, wanted))


def _first(topic: Topic, entry: Entry | None) -> int:
    return topic.next_entry if entry is None else entry.entry_id


def held_from(topic: Topic) -> int:
    """The offset from which on data is held: by a durable subscription, or by what compaction left.

    A compacted topic keeps its remaining messages and those published since, which include the last values.
    """
    compaction = topic.compaction
    if compaction.status == "RUNNING":
        return topic.first_offset
    kept = topic.next_offset if compaction.kept is None else compaction.kept.next(topic.first_offset)
    return min(kept, topic.backlog.slowest)


async def _foresee(topic: Topic, found: Look) -> None:
    """When something will have to go, if nothing else happens."""
    policies = topic.policies
    due: list[int] = []
    next_lasts: list[int] = []
    minutes = policies.retention.minutes
    if minutes >= 0 and topic.first_entry == topic.next_entry:
        next_lasts.append(60_000 * minutes + 1)
    elif minutes >= 0 and not found.held:
        due += [e.publish_time + 60_000 * minutes + 1 for e in await topic.read(topic.first_entry, 1, 1)]
    limits = [1000 * policies.message_ttl_s] if policies.message_ttl_s > 0 else []
    if policies.age_quota.limit >= 0 and policies.age_quota.action is QuotaAction.EVICT:
        limits.append(1000 * policies.age_quota.limit)
    if limits:
        marks = [s.cursor.mark for s in topic.subscriptions.values() if s.backlog]
        if len(marks) < len(topic.subscriptions):
            next_lasts.append(min(limits) + 1)
        if marks:
            oldest = await topic.read_at(min(marks), 1, 1)
            due += [e.publish_time + min(limits) + 1 for e in oldest]
    found.due_ms = min(due, default=None)
    found.lasts_ms = min(next_lasts, default=None)
