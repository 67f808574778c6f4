"""Subscriptions over all partitions of their topics, as administrators see them."""

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar, cast

from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.engines.core.topic.topic import Topic as OwnTopic
from penstock.engines.shared.unsubscribing import connected_error
from penstock.engines.subscription import Subscription as OwnSubscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName, check_subscription

from .subscriptions import RunningSubscriptions

T = TypeVar("T", bound=Topic)
Opened = TypeVar("Opened", bound=Topic, covariant=True)
Used = TypeVar("Used", bound=Topic, contravariant=True)


class Topics(Protocol[Opened]):
    """The used part of `broker.Topics`."""

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[Opened]: ...
    async def set_partitions(self, name: TopicName, partitions: int) -> None:
        """Let a topic have more partitions; raises FEWER_PARTITIONS, BAD_PARAMETER, TOPIC_NOT_FOUND."""


class LogSubscriptions(Protocol[Used]):
    """The subscriptions of single logs, whichever process runs them."""

    def find(self, topic: Used, name: str) -> Subscription | None:
        """A subscription; None if it certainly does not exist, else `refresh` says so."""

    async def create(self, topic: Used, name: str, mark: int, properties: Mapping[str, str]) -> bool:
        """Have a durable subscription, everything below `mark` acknowledged; returns whether it is new."""

    async def skip(self, subscription: Subscription, offset: int) -> None:
        """Acknowledge everything below an offset; durable after `flush` at the latest."""

    def durable(self, topic: Used) -> Mapping[str, Mapping[str, str]]:
        """The properties of the durable subscriptions of a log, by name."""


class TopicSubscriptions(Generic[T]):
    """`broker.Subscriptions`."""

    def __init__(self, topics: Topics[T], logs: LogSubscriptions[T]) -> None:
        self._topics = topics
        self._logs = logs

    async def of(self, name: TopicName, subscription: str) -> list[Subscription]:
        found: list[Subscription] = []
        for topic in await self._topics.all_of(name, create=False):
            one = self._logs.find(topic, subscription)
            if one is not None and (one.consumers or await _exists(one)):
                found.append(one)
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
        """As `broker.Subscriptions.create`. A call that failed may have created it on some partitions: then another one creates it
        on the others."""
        check_subscription(subscription)
        topics = await self._topics.all_of(name)
        marks: list[int] = []
        for topic in topics:
            await topic.refresh()
            marks.append(await topic.offset_after(start, inclusive=inclusive))
        new = [
            await self._logs.create(topic, subscription, mark, properties or {})
            for topic, mark in zip(topics, marks, strict=True)
        ]
        if not any(new):
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {name}"
            )

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> Subscription:
        check_subscription(subscription)
        log = cast(T, topic)
        await log.refresh()
        bounds = log.bounds
        if offset > bounds.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{log.name} ends at {bounds.next_offset}, before {offset}"
            )
        offset = max(offset, bounds.first_offset)
        new = await self._logs.create(log, subscription, offset, {})
        found = self._logs.find(log, subscription)
        if found is None or not await _exists(found):
            raise PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, f"subscription {subscription} was deleted")
        if new:
            return found
        figures = found.figures()
        if figures.connected and figures.type is not None and figures.type.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{subscription} is shared by consumers: none may acknowledge for all",
            )
        if exact and offset < figures.mark:
            await found.move(offset)
        else:
            await self._logs.skip(found, offset)
        return found

    async def grow(self, name: TopicName, partitions: int) -> None:
        before = await self._topics.all_of(name, create=False)
        kept = {one: given for topic in before for one, given in self._logs.durable(topic).items()}
        await self._topics.set_partitions(name, partitions)
        for topic in await self._topics.all_of(name, create=False):
            for one in sorted(kept.keys() - self._logs.durable(topic).keys()):
                await topic.refresh()
                await self._logs.create(topic, one, topic.bounds.first_offset, kept[one])

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        found = await self.of(name, subscription)
        for one in found if not force else ():
            await one.refresh()
            if one.figures().connected:
                raise connected_error(subscription)
        for one in found:
            await one.delete(force=force)


async def _exists(subscription: Subscription) -> bool:
    """Learn the figures of a subscription, if it exists."""
    try:
        await subscription.refresh()
    except PenstockError as error:
        if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
            raise
        return False
    return True


class OwnSubscriptions:
    """`LogSubscriptions` of a broker that runs all of them."""

    def __init__(self, running: RunningSubscriptions[OwnTopic, OwnSubscription]) -> None:
        self._running = running

    def find(self, topic: OwnTopic, name: str) -> OwnSubscription | None:
        return topic.subscriptions.get(name)

    async def create(self, topic: OwnTopic, name: str, mark: int, properties: Mapping[str, str]) -> bool:
        _, new = await self._running.create(topic, name, mark, properties)
        return new

    async def skip(self, subscription: Subscription, offset: int) -> None:
        subscription.skip(offset)

    def durable(self, topic: OwnTopic) -> Mapping[str, Mapping[str, str]]:
        return {name: one.properties for name, one in topic.subscriptions.items() if one.durable}
