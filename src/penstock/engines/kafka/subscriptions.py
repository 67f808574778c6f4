"""Subscriptions as administrators see them: groups that have committed something for a topic."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, cast

from penstock.broker.topic import Topic
from penstock.engines.shared.unsubscribing import check_sole_consumer, other_consumers_error
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName, check_subscription
from penstock.model.policy import ConsumerOptions, SubscriptionType

from .beginnings import Beginnings
from .cursors import Cursor, committed_cursor
from .documents import Documents
from .driver.record import At
from .hosting import Hosting
from .owners import Owners
from .subscription import GroupSubscription
from .topic import KafkaTopic
from .topics import KafkaTopics

log = logging.getLogger(__name__)

LOOKS_MAX: Final = 8  # groups that are asked for their commits at once


class KafkaSubscriptions:
    """`broker.Subscriptions`."""

    def __init__(self, topics: KafkaTopics, hosting: Hosting, owners: Owners, documents: Documents) -> None:
        self._topics = topics
        self._owners = owners
        self._beginnings = Beginnings(documents)
        self._hosting = hosting

    # -- beginning

    async def begin(
        self,
        topics: Sequence[KafkaTopic],
        name: str,
        marks: Mapping[KafkaTopic, int],
        options: ConsumerOptions,
    ) -> bool:
        """Have a cursor committed for each of these logs, at its mark; partitions that came since the others began at theirs
        are begun at the beginning.

        Returns whether it is new. Raises SUBSCRIPTION_NOT_FOUND where a subscription is not made by consuming.
        """
        await self._owners.over(topics[0].name, name)
        group = self._hosting.groups.of(name)
        by_place = {_place(topic): topic for topic in topics}
        every = await self._every_place(topics)
        committed = await group.committed(every)
        missing = [place for place in by_place if place not in committed]
        if not missing:
            return False
        known = bool(committed)
        if not known and not topics[0].policies.auto_subscriptions:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND,
                f"{topics[0].name} has no subscription {name}, and autoSubscriptionCreation is off",
            )
        # Who names single partitions, as clients of Pulsar's protocol do, names all of them in turn.
        came = known and len(every) == len(topics)
        starts = {
            place: by_place[place].first_offset if came else marks[by_place[place]] for place in missing
        }
        own = {place: mark for place, mark in starts.items() if mark != by_place[place].first_offset}
        if not own:
            await self._commit_starts(name, by_place, starts, options.type)
            return not known
        async with self._beginnings.agreed(group.name, own) as agreed:
            there = await group.committed(starts)
            starts = {place: mark for place, mark in (starts | agreed).items() if place not in there}
            await self._commit_starts(name, by_place, starts, options.type)
        return not known

    async def _every_place(self, topics: Sequence[KafkaTopic]) -> list[At]:
        """The partitions of the topic of these logs, which may be some of them."""
        of = topics[0].name.base
        names = self._topics.logs(of) if self._topics.exists(of) else []
        kafka = topics[0].place.topic
        return [(kafka, number) for number in range(max(1, len(names)))]

    async def _commit_starts(
        self,
        name: str,
        topics: Mapping[At, KafkaTopic],
        starts: Mapping[At, int],
        kind: SubscriptionType | None,
    ) -> None:
        group = self._hosting.groups.of(name)
        changes = {place: committed_cursor(OffsetSet(mark), kind)[0] for place, mark in starts.items()}
        try:
            await group.commit_outside(changes)
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_BUSY:
                raise
            # Others are members: another process has begun meanwhile, or has consumers of other topics.
            there = await group.committed(starts)
            for place in starts.keys() - there.keys():
                await self._owners.move(self._hosting.durable(topics[place], name), starts[place], skip=False)

    # -- as an administrator sees them

    async def of(self, name: TopicName, subscription: str) -> list[GroupSubscription]:
        """The subscription on every partition; the cluster is asked for it where it has no consumers here."""
        topics = await self._topics.all_of(name, create=False)
        elsewhere = [topic for topic in topics if not _has_consumers(topic, subscription)]
        if not elsewhere:
            return await self._sources(topics, subscription)
        committed = await self._hosting.groups.of(subscription).committed(map(_place, elsewhere))
        if not committed and len(elsewhere) == len(topics):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, f"{name} has no subscription {subscription}"
            )
        found = await self._sources(topics, subscription)
        await self._hosting.groups.stand([one for one in found if not one.consumers], committed)
        return found

    async def _sources(self, topics: Sequence[KafkaTopic], subscription: str) -> list[GroupSubscription]:
        """The subscription on these partitions of one topic, which all have its properties."""
        found = [self._hosting.durable(topic, subscription) for topic in topics]
        await found[0].read_properties()
        for one in found[1:]:
            one.properties = found[0].properties
        return found

    async def learn(self, name: TopicName) -> None:
        """Enter the groups that have committed for a topic among its subscriptions."""
        topics = await self._topics.all_of(name, create=False)
        places = [_place(topic) for topic in topics]
        outside, prefix = self._hosting.groups.outside, self._hosting.groups.prefix
        names = [one for one in await outside.names() if one.startswith(prefix)]
        for start in range(0, len(names), LOOKS_MAX):
            some = names[start : start + LOOKS_MAX]
            found = await asyncio.gather(*(self._stand_all(topics, places, one) for one in some))
            for one, there in zip(some, found, strict=True):
                if not there:
                    self._drop(topics, one.removeprefix(prefix))

    async def _stand_all(self, topics: Sequence[KafkaTopic], places: Sequence[At], group: str) -> bool:
        subscription = group.removeprefix(self._hosting.groups.prefix)
        committed = await self._hosting.groups.of(subscription).committed(places)
        if not committed:
            return False
        others = [topic.subscriptions.get(subscription) for topic in topics]
        sources = [
            self._hosting.durable(topic, subscription)
            for topic, other in zip(topics, others, strict=True)
            if other is None or isinstance(other, GroupSubscription)
        ]
        if sources:
            await self._hosting.groups.stand(sources, committed)
        return True

    def _drop(self, topics: Sequence[KafkaTopic], subscription: str) -> None:
        """A group has nothing more of a topic."""
        for topic in topics:
            found = topic.subscriptions.get(subscription)
            if isinstance(found, GroupSubscription) and not found.consumers:
                found.host.removed(found)

    async def create(
        self,
        name: TopicName,
        subscription: str,
        start: MessageId,
        *,
        inclusive: bool = False,
        properties: dict[str, str] | None = None,
    ) -> None:
        check_subscription(subscription)
        topics = await self._topics.all_of(name)
        group = self._hosting.groups.of(subscription)
        if await group.committed([_place(topic) for topic in topics]):
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {name}"
            )
        starts: dict[At, int] = {}
        for topic in topics:
            await topic.refresh()
            starts[_place(topic)] = await topic.offset_after(start, inclusive=inclusive)
        changes = {place: committed_cursor(OffsetSet(mark), None)[0] for place, mark in starts.items()}
        await group.commit_outside(changes)
        made = [self._hosting.durable(topic, subscription, properties) for topic in topics]
        if properties:
            await made[0].set_properties(properties)

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> GroupSubscription:
        log_ = cast(KafkaTopic, topic)
        await log_.refresh()
        if offset > log_.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{log_.name} ends at {log_.next_offset}, before {offset}"
            )
        group, place = self._hosting.groups.of(subscription), _place(log_)
        offset = max(offset, log_.first_offset)
        committed = await group.committed([place])
        source = self._hosting.durable(log_, subscription)
        if not committed and source.suspended:
            saved = committed_cursor(OffsetSet(offset), None)[0]
            await group.commit_outside({place: saved})
            source.load(Cursor(offset), saved)
            return source
        await self._hosting.groups.stand((source,), committed)
        if source.consumers and source.type is not None and source.type.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{subscription} is shared by consumers: none may acknowledge for all",
            )
        if exact and offset < source.cursor.mark:
            await source.move(offset)
        else:
            source.skip(offset)
            if source.suspended:
                await source.flush()
        return source

    async def grow(self, name: TopicName, partitions: int) -> None:
        await self._topics.grow(name, partitions)

    def sweep(self) -> None:
        """Count as acknowledged what retention deleted."""
        for topic in self._topics.open_topics:
            for source in topic.subscriptions.values():
                cast(Subscription, source).trimmed(topic.first_offset)

    # -- going

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        found = await self.of(name, subscription)
        if not force and any(source.consumers for source in found):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {subscription} has active connected consumers"
            )
        if not force:
            await self._delete_all(found)
            return
        async with self._owners.deleting(found):
            await self._delete_all(found, alone=True)

    async def delete_of(self, consumer: Consumer) -> None:
        """As `Consumer.unsubscribe`."""
        found = [one for one in consumer.attached if isinstance(one, GroupSubscription)]
        check_sole_consumer(found)
        if found and await self._elsewhere(found):
            raise other_consumers_error()
        await self._delete_all(found)

    async def _elsewhere(self, found: Sequence[GroupSubscription]) -> bool:
        """Whether other processes have consumers of these subscriptions, which have one name."""
        group = self._hosting.groups.of(found[0].name)
        return bool(await group.others([source.at for source in found]))

    async def _delete_all(self, found: Sequence[GroupSubscription], *, alone: bool = False) -> None:
        """Delete subscriptions of one name; raises SUBSCRIPTION_BUSY where other processes have consumers, unless those
        were let go (`alone`)."""
        if not found:
            return
        group = self._hosting.groups.of(found[0].name)
        places = [source.at for source in found]
        if not alone and await self._elsewhere(found):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {found[0].name} has consumers at other processes"
            )
        await self._owners.dissolve(group, found)
        await self._owners.forget_all(group, found[0], places)
        if any(source.properties for source in found):
            await found[0].set_properties({})


def _has_consumers(topic: KafkaTopic, subscription: str) -> bool:
    found = topic.subscriptions.get(subscription)
    return isinstance(found, GroupSubscription) and bool(found.consumers)


def _place(topic: KafkaTopic) -> At:
    return topic.place.topic, topic.place.partition
