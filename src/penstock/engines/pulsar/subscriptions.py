"""Subscriptions over all partitions of their topics: the cluster has them."""

from collections.abc import Sequence
from typing import Any, Final, cast

from penstock.broker.subscription import Subscription as AnySubscription
from penstock.broker.topic import Topic
from penstock.engines.attached.subscription import Subscription, subscriptions_of
from penstock.engines.shared.unsubscribing import connected_error
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName, check_subscription
from penstock.model.target import Target

from .cluster import PulsarCluster
from .topic import PulsarTopic
from .topics import PulsarTopics

_LARGEST: Final = 2**63 - 1


class PulsarSubscriptions:
    """`broker.Subscriptions`."""

    def __init__(self, cluster: PulsarCluster, topics: PulsarTopics) -> None:
        self._cluster = cluster
        self._topics = topics

    async def of(self, name: TopicName, subscription: str) -> Sequence[Subscription]:
        """The subscription on every partition; the cluster is asked for one without consumers here."""
        found: list[Subscription] = []
        for topic in await self._topics.all_of(name, create=False):
            known = subscriptions_of(topic)
            one = known.get(subscription)
            if one is None or not one.consumers:
                one = one or Subscription(self._cluster.admin, topic, subscription)
                await one.refresh()  # raises SUBSCRIPTION_NOT_FOUND
            found.append(one)
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
        """Create a durable subscription; on a partitioned topic at its beginning or end."""
        check_subscription(subscription)
        await self._topics.all_of(name)
        body: Any = {"ledgerId": start.ledger, "entryId": start.entry, "partitionIndex": start.partition}
        if start == LATEST:
            body = {"ledgerId": _LARGEST, "entryId": _LARGEST, "partitionIndex": -1}
        elif start == EARLIEST:
            body = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        if properties:
            body["properties"] = properties
        await self._cluster.admin.call(
            "PUT", Target.of_subscription(name, subscription), body=body, missing=ErrorKind.TOPIC_NOT_FOUND
        )

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> AnySubscription:
        """Have a subscription follow a reader: everything below `offset` is done."""
        if offset > topic.bounds.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"offset {offset} is past the end, {topic.bounds.next_offset}"
            )
        one = self._cluster.subscription(topic, subscription)
        try:
            await one.refresh()
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                raise
            await self.create(topic.name, subscription, EARLIEST)
            one.cursor.learn(topic.bounds.first_offset, [])
        if one.connected:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{subscription} has consumers on {topic.name}: to move it would disconnect them",
            )
        if offset > one.cursor.mark or (exact and offset != one.cursor.mark):
            before = cast(PulsarTopic, topic).place_before(offset)
            if before is None:
                await one.move(offset)
            else:
                await one.seek(MessageId(*before, topic.name.partition))
            one.cursor.learn(offset, [])
        return one

    async def grow(self, name: TopicName, partitions: int) -> None:
        await self._cluster.admin.call(
            "POST", Target.of_topic(name, "partitions"), body=partitions, missing=ErrorKind.TOPIC_NOT_FOUND
        )
        self._topics.appeared(name, partitions)

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        found = await self.of(name, subscription)
        if not force and any(one.consumers or one.connected for one in found):
            raise connected_error(subscription)
        for one in found:
            await one.delete(force=force)
