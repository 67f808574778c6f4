"""The subscriptions of a broker's topics: made, read back, moved and deleted. Who takes part is `consumers`'."""

import logging
from collections.abc import Callable
from typing import cast

import msgspec

from penstock.broker.topic import Topic as AnyTopic
from penstock.engines.core.ports import CursorChange
from penstock.engines.core.topic.topic import Topic
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName, check_subscription

from .topics import Topics

log = logging.getLogger(__name__)

Build = Callable[[Topic, str, OffsetSet, bool, dict[str, str] | None], Subscription]


class Subscriptions:
    """`broker.Subscriptions`: every subscription there is. `build` makes one of a topic: name, cursor, whether durable, properties."""

    def __init__(self, topics: Topics, build: Build) -> None:
        self._topics = topics
        self._build = build

    # -- being there

    async def restore(self, topic: Topic) -> None:
        """Read the durable subscriptions of a topic that is being opened."""
        for saved in await topic.store.load_cursors(topic.ledger):
            try:
                check_subscription(saved.subscription)
            except PenstockError as error:
                log.warning(
                    "a subscription of %s stays in the store and is not served: %s", topic.name, error
                )
                continue
            cursor = OffsetSet.load(max(saved.mark, topic.first_offset), saved.chunks)
            properties = msgspec.json.decode(saved.properties or b"{}", type=dict[str, str])
            self._add(topic, saved.subscription, cursor, True, properties)

    async def make(
        self,
        topic: Topic,
        name: str,
        mark: int,
        *,
        durable: bool,
        properties: dict[str, str] | None = None,
    ) -> Subscription:
        """A subscription of one topic or partition, everything below `mark` acknowledged; raises
        TOO_MANY_SUBSCRIPTIONS. One of that name that was made meanwhile is returned."""
        topic.check_subscriptions()
        if durable:
            kept = msgspec.json.encode(properties or {})
            await topic.store.save_cursors([CursorChange(topic.ledger, name, mark, {}, kept)])
        made = topic.subscriptions.get(name)  # another call may have made it while this one was stored
        if made is None:
            made = self._add(topic, name, OffsetSet(mark), durable, properties)
            topic.backlog.forget()
        return made

    def _add(
        self, topic: Topic, name: str, cursor: OffsetSet, durable: bool, properties: dict[str, str] | None
    ) -> Subscription:
        made = topic.subscriptions[name] = self._build(topic, name, cursor, durable, properties)
        return made

    async def grow(self, name: TopicName, partitions: int) -> None:
        await self._topics.set_partitions(name, partitions)
        topics = await self._topics.all_of(name, create=False)
        kept = {s.name: s for topic in topics for s in topic.subscriptions.values() if s.durable}
        for topic in topics:
            for one in kept.values():
                if one.name not in topic.subscriptions:
                    await self.make(
                        topic, one.name, topic.first_offset, durable=True, properties=one.properties
                    )

    # -- as an administrator sees them

    async def of(self, name: TopicName, subscription: str) -> list[Subscription]:
        topics = await self._topics.all_of(name, create=False)
        found = [t.subscriptions[subscription] for t in topics if subscription in t.subscriptions]
        if not found:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, f"{name} has no subscription {subscription}"
            )
        return found

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
        if any(subscription in topic.subscriptions for topic in topics):
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {name}"
            )
        marks = [await topic.offset_after(start, inclusive=inclusive) for topic in topics]
        for topic, mark in zip(topics, marks, strict=True):
            await self.make(topic, subscription, mark, durable=True, properties=properties)

    async def set_mark(
        self, topic: AnyTopic, subscription: str, offset: int, *, exact: bool = False
    ) -> Subscription:
        topic = cast(Topic, topic)
        if offset > topic.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{topic.name} ends at {topic.next_offset}, before {offset}"
            )
        offset = max(offset, topic.first_offset)
        found = topic.subscriptions.get(subscription)
        if found is None:
            return await self.make(topic, subscription, offset, durable=True)
        if found.consumers and found.type is not None and found.type.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{subscription} is shared by consumers: none may acknowledge for all",
            )
        if exact and offset < found.cursor.mark:
            await found.move(offset)
        else:
            found.skip(offset)
        return found

    # -- going

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        found = await self.of(name, subscription)
        if not force and any(s.consumers for s in found):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {subscription} has active connected consumers"
            )
        for one in found:
            await one.delete()
