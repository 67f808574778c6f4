"""Consumer groups before engines that have none: a group is a Failover subscription of each of its topics.

A member is a consumer without permits: it shares the partitions, and reads their logs by offset. What it commits is the mark of the
subscription, which consumers of other protocols share.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple, cast

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, require
from penstock.broker.consumer import Consumer
from penstock.broker.groups import (
    Committed,
    Edge,
    GroupOptions,
    GroupRecord,
    Position,
    Since,
    TopicPartition,
)
from penstock.broker.log import Log
from penstock.broker.names import check_partition
from penstock.broker.pattern_topics import PatternTopics
from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName, check_subscription
from penstock.model.policy import ConsumerOptions, SubscriptionType

from .commits import committed_in, note
from .fetched import Fetched, FoundRecords, SeenRecords

LOOK_MS: Final = 1000  # poll interval for topics that come later

_MISSING: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)


class SubscriptionGroups:
    """`broker.Groups`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def join(self, group: str, options: GroupOptions) -> "SubscriptionMember":
        require(self._broker.capabilities, Capability.OFFSETS)
        return SubscriptionMember(self._broker, check_subscription(group), options)


class _Shared(NamedTuple):
    """A partition that a member shares, if it has it now."""

    consumer: Consumer
    source: Subscription


class SubscriptionMember:
    """`broker.GroupMember`."""

    def __init__(self, broker: Broker, group: str, options: GroupOptions) -> None:
        self.owner: str | None = None
        self.proxy: str | None = None
        self.closed = False
        self.close_reason: PenstockError | None = None
        self._broker = broker
        self._group = group
        self._options = options
        self._start = EARLIEST if options.start is Edge.BEGINNING else LATEST
        self._topics: set[TopicName] = set()
        self._pattern: PatternTopics | None = None
        self._consumers: dict[TopicName, Consumer] = {}
        self._assigned: dict[TopicPartition, Topic] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._fetched: dict[TopicPartition, Fetched] = {}  # and not committed
        self._sought: set[TopicPartition] = set()  # whose positions may be before what is committed
        self._new: set[TopicPartition] = set()  # without a commit: their subscription is new
        self._news = asyncio.Event()
        self._moving = False
        self._changes = 0  # of partitions and positions by others
        self._turn = 0

    # -- partitions

    @property
    def topics(self) -> Sequence[TopicName]:
        return sorted(self._topics)

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        shared = self._shared()
        active = [one for one in shared if shared[one].source.active is shared[one].consumer]
        return sorted([*active, *self._assigned])

    def _shared(self) -> dict[TopicPartition, _Shared]:
        return {
            partition_of(source.topic): _Shared(consumer, source)
            for consumer in self._consumers.values()
            for source in consumer.attached
        }

    async def subscribe(self, topics: Sequence[TopicName]) -> None:
        await self.unsubscribe(keep=set(topics))
        self._topics = set(topics)
        await self._join()

    async def subscribe_pattern(self, pattern: str, allowed: Callable[[TopicName], bool]) -> None:
        made = PatternTopics(self._broker.topics, self._broker.watch, pattern, allowed, self._news.set)
        try:
            found = set(await made.names())
            await self.unsubscribe(keep=found)
        except BaseException:
            made.close()
            raise
        self._pattern, self._topics = made, found
        await self._join()

    async def _join(self) -> None:
        """Take part in the subscriptions of all topics, or of none if one of them cannot be joined."""
        try:
            await self._follow()
        except BaseException:
            await self.unsubscribe()
            raise

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        logs = {one: await self._log(one) for one in partitions}
        await self.unsubscribe()
        self._assigned = logs
        for one, log in logs.items():
            self._positions[one] = await self._first(one, log)

    async def unsubscribe(self, keep: Set[TopicName] = frozenset()) -> None:
        """Give up everything but the subscriptions to `keep`."""
        await self._commit_fetched()
        self._end_pattern()
        self._topics.clear()
        self._assigned.clear()
        for topic in self._consumers.keys() - keep:
            await self._consumers.pop(topic).leave()
        self._forget_others()

    def _end_pattern(self) -> None:
        pattern, self._pattern = self._pattern, None
        if pattern is not None:
            pattern.close()

    async def _follow(self) -> None:
        """Take part in the subscriptions of the topics that exist. A topic that was deleted is joined once it exists again."""
        if self._pattern is not None:
            self._topics = set(await self._pattern.names())
        for topic, consumer in list(self._consumers.items()):
            if consumer.closed or topic not in self._topics:
                del self._consumers[topic]
                await consumer.leave()
                reason = consumer.close_reason
                if reason is not None and reason.kind not in _MISSING:
                    raise reason
                self._forget_others()
        for topic in sorted(self._topics - self._consumers.keys()):
            try:
                self._consumers[topic] = await self._subscribe(topic)
            except PenstockError as error:
                if error.kind not in _MISSING:
                    raise

    def _forget_others(self) -> None:
        """Forget the positions in partitions that it does not share any more."""
        kept = self._shared().keys()
        for known in (self._positions, self._fetched):
            for one in known.keys() - kept:
                del known[one]
        self._sought &= kept
        self._new &= kept

    async def _subscribe(self, topic: TopicName) -> Consumer:
        options = ConsumerOptions(
            name=self._options.name,
            type=SubscriptionType.FAILOVER,
            start=self._start,
            flow=True,
            client=self._options.client,
        )
        known = {partition_of(source.topic) for source in await self._subscriptions(topic)}
        made = await self._broker.subscribe([topic], self._group, options)
        made.owner, made.proxy = self.owner, self.proxy
        made.active_changed, made.moved = self._active_changed, self._moved
        self._new |= {partition_of(source.topic) for source in made.attached} - known
        return made

    def _active_changed(self, source: Subscription, active: bool) -> None:
        one = partition_of(source.topic)
        self._changes += 1
        if not active:
            self._positions.pop(one, None)
            self._sought.discard(one)
            fetched, consumer = self._fetched.pop(one, None), self._consumers.get(one.topic)
            if self._options.auto_commit and consumer and fetched and fetched.last is not None:
                acknowledging = _acknowledge(consumer, fetched.last)
                self._broker.tasks.spawn(acknowledging, f"commit for group {self._group}")
        self._news.set()

    def _moved(self) -> None:
        """A subscription was moved by others, it is not known which one."""
        if not self._moving:
            self._changes += 1
            for known in (self._positions, self._fetched):
                for one in known.keys() - self._assigned:
                    del known[one]
            self._news.set()

    async def _subscriptions(self, topic: TopicName) -> Sequence[Subscription]:
        """The group's subscriptions of a topic or partition, with what is known of them now."""
        try:
            found = await self._broker.subscriptions.of(topic, self._group)
            for source in found:
                if source.consumers:  # the engine may know it as it was before
                    await source.refresh()
        except PenstockError as error:
            if error.kind not in (*_MISSING, ErrorKind.SUBSCRIPTION_NOT_FOUND):
                raise
            return ()
        return found

    async def _log(self, one: TopicPartition) -> Topic:
        """The log of a partition. Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND."""
        topics, topic = self._broker.topics, one.topic
        await topics.learn(topic)
        if not topics.exists(topic):
            raise topics.missing(topic)
        count = topics.partitions(topic)
        check_partition(one.partition, count or 1)
        return await topics.get(topic.of_partition(one.partition) if count else topic, create=False)

    # -- positions

    async def seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        found: dict[TopicPartition, int] = {}
        for one, position in positions.items():
            if isinstance(position, int):
                found[one] = position
                continue
            log = await self._log(one)
            await log.refresh()
            if isinstance(position, Since):
                found[one] = await log.offset_at_time(position.timestamp)
            elif position is Edge.BEGINNING:
                found[one] = log.bounds.first_offset
            else:
                found[one] = log.bounds.next_offset
        self._positions |= found
        self._sought |= found.keys()
        self._fetched |= {one: Fetched(at, None) for one, at in found.items()}
        self._news.set()

    async def _first(self, one: TopicPartition, log: Topic, shared: _Shared | None = None) -> int:
        """Where reading begins: at the committed offset, or at the end that the member's options name."""
        if shared is not None:
            await shared.source.refresh()
            return committed_in(shared.source).offset
        for source in await self._subscriptions(log.name):
            return committed_in(source).offset
        await log.refresh()
        return self._reset(log)

    def _reset(self, log: Log) -> int:
        return log.bounds.first_offset if self._start is EARLIEST else log.bounds.next_offset

    async def _position(self, one: TopicPartition, log: Topic, shared: _Shared | None) -> int:
        """Where reading goes on. Of a position beyond the end `GroupOptions.start` decides, as with Kafka."""
        at = self._positions.get(one)
        if at is None:
            at = await self._first(one, log, shared)
        await log.refresh()
        return self._reset(log) if at > log.bounds.next_offset else max(at, log.bounds.first_offset)

    # -- records

    async def fetch(self, wait_ms: int, bytes_max: int, bytes_min: int = 0) -> list[GroupRecord]:
        await self._commit_fetched()
        clock = self._broker.clock
        until_ms = clock.monotonic_ms() + wait_ms
        seen, changes = SeenRecords(), self._changes
        while True:
            self._news.clear()
            await self._follow()
            if changes != self._changes:
                seen, changes = SeenRecords(), self._changes
            found = await self._read(bytes_max, seen.positions)
            left_ms = until_ms - clock.monotonic_ms()
            if left_ms <= 0 or seen.are_enough(found, bytes_max, bytes_min):
                if seen.positions:  # records were not kept during the wait
                    found, seen = await self._read(bytes_max, {}), SeenRecords()
                if found.count or left_ms <= 0:
                    return self._take(found)
            elif found.count:
                seen.add(found)
            del found
            await self._wait(left_ms)

    async def _wait(self, wait_ms: int) -> None:
        """Until there may be records, or topics."""
        logs = [cast(Topic, one.source.topic) for one in self._shared().values()]
        logs += self._assigned.values()
        whole = self._pattern is None and self._topics == self._consumers.keys()
        wake = self._news.set
        timer = self._broker.clock.call_later(wait_ms if whole else min(wait_ms, LOOK_MS), wake)
        for log in logs:
            log.followers.add(wake)
        try:
            await self._news.wait()
        finally:
            timer.cancel()
            for log in logs:
                log.followers.discard(wake)

    async def _read(self, bytes_max: int, ahead: Mapping[TopicPartition, int]) -> FoundRecords:
        """The records that follow, in partitions of `ahead` from there on. Nothing is moved."""
        shared, found = self._shared(), FoundRecords(bytes_max)
        partitions = self.assignment
        self._turn += 1
        for number in range(len(partitions)):
            if not found.has_room():
                break
            one = partitions[(self._turn + number) % len(partitions)]
            log = self._assigned.get(one) or cast(Topic, shared[one].source.topic)
            at = ahead.get(one)
            if at is None:
                at = await self._position(one, log, shared.get(one))
            else:
                await log.refresh()
            await found.read(one, log, at)
        return found

    def _take(self, found: FoundRecords) -> list[GroupRecord]:
        """Move the positions behind records, which are returned."""
        kept = set(self.assignment)  # other members may have got partitions meanwhile
        self._positions |= {one: at for one, at in found.positions.items() if one in kept}
        self._fetched |= {one: last for one, last in found.fetched.items() if one in kept}
        return [record for one, records in found.records.items() if one in kept for record in records]

    # -- commits

    async def _commit_fetched(self) -> None:
        for one in list(self._fetched) if self._options.auto_commit else ():
            try:
                await self._commit_position(one)
            except PenstockError as error:
                if error.kind not in (*_MISSING, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.MESSAGE_NOT_FOUND):
                    raise
                self._fetched.pop(one, None)  # with its topic

    async def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        if offsets is None:
            for one in list(self._fetched):
                await self._commit_position(one)
            return
        for one, given in offsets.items():
            await self._commit(one, given)

    async def _commit_position(self, one: TopicPartition) -> None:
        fetched, consumer = self._fetched[one], self._consumers.get(one.topic)
        if consumer is None or fetched.last is None or one in self._sought:
            await self._commit(one, Committed(fetched.offset))
        else:
            await _acknowledge(consumer, fetched.last)
            self._done(one, fetched.offset)

    async def _commit(self, one: TopicPartition, given: Committed) -> None:
        """Set the mark, forwards or backwards."""
        log = await self._log(one)
        await log.refresh()
        mark = max(log.bounds.first_offset, min(given.offset, log.bounds.next_offset))
        shared = self._shared().get(one)
        if shared is None:
            source = await self._broker.subscriptions.set_mark(log, self._group, mark, exact=True)
            await source.flush()
        else:
            consumer, source = shared
            await source.refresh()
            before = source.figures().mark
            entries = await log.read_at(mark - 1, 1) if mark > before else []
            if entries and entries[0].offset < mark <= entries[0].end:
                place = mark - 1 - entries[0].offset if entries[0].count > 1 else -1
                await _acknowledge(consumer, log.id_of(entries[0], place))
            elif mark != before:
                self._moving = True
                try:
                    await source.move(mark)
                finally:
                    self._moving = False
        await note(source, given)
        self._done(one, given.offset)

    def _done(self, one: TopicPartition, offset: int) -> None:
        """The group has committed an offset."""
        self._new.discard(one)
        self._sought.discard(one)
        fetched = self._fetched.get(one)
        if fetched is not None and fetched.offset <= offset:
            del self._fetched[one]

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        found: dict[TopicPartition, Committed] = {}
        for one in partitions:
            log = await self._log(one)
            for source in await self._subscriptions(log.name) if one not in self._new else ():
                found[one] = committed_in(source)
        return found

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._news.set()
        try:
            await self.unsubscribe()
        finally:
            self._end_pattern()
            for consumer in self._consumers.values():  # if a commit failed
                await consumer.leave()


async def _acknowledge(consumer: Consumer, last: MessageId) -> None:
    """Commit everything up to and with a message, durably."""
    await consumer.acknowledge_cumulative(last)
    await consumer.flush()


def partition_of(log: Log) -> TopicPartition:
    """The partition whose log it is."""
    return TopicPartition(log.name.base, log.partition)
