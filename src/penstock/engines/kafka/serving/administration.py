"""Subscriptions over all partitions of their topics: the owners of the partitions have them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.broker.topic import Topic
from penstock.engines.attached.link import Attachment, LinkSink, OwnerLink
from penstock.engines.attached.subscription import Admin, attached_subscription, subscriptions_of
from penstock.engines.kafka.ownership.state import StoredCursor
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName, check_subscription

from .attached import OwnedSubscription
from .links import OwnerLinks, Owners
from .others import OtherProcesses
from .subscriptions import ServedSubscriptions


class Service:
    """`attached.Cluster`: the processes of the service, for the consumers of this one."""

    numbered = True

    def __init__(
        self,
        links: OwnerLinks,
        served: ServedSubscriptions,
        owners: Owners,
        admin: Admin,
        others: OtherProcesses,
    ) -> None:
        self.owners = owners
        self.others = others
        self.served = served
        self.admin = admin
        self._links = links

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        return await self._links.link_to(wanted, sink)

    def subscription(self, topic: Topic, name: str) -> OwnedSubscription:
        """The subscription of that name, as all consumers of this process see it."""
        made = attached_subscription(self._make, topic, name)
        assert isinstance(made, OwnedSubscription)
        return made

    async def consumers(self, topic: KafkaTopic, name: str) -> Sequence[Mapping[str, str]]:
        """The properties of all consumers of a subscription, in any process."""
        try:
            return await self.find(topic, name).consumer_properties()
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                raise
            return []

    def find(self, topic: KafkaTopic, name: str) -> OwnedSubscription:
        """The same, but for a single use: one that this process does not know yet is not entered among the topic's."""
        known = subscriptions_of(topic).get(name)
        return known if isinstance(known, OwnedSubscription) else self._make(topic, name)

    def stored(self, topic: KafkaTopic) -> Mapping[str, StoredCursor]:
        """The durable subscriptions of a topic, as far as the journal was read."""
        return self.owners.stored(topic.name)

    def _make(self, topic: Topic, name: str) -> OwnedSubscription:
        assert isinstance(topic, KafkaTopic)
        return OwnedSubscription(self.served, self.owners, self.admin, topic, name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Owners keep acknowledgements of messages in batches."""
        return name == "acknowledgmentAtBatchIndexLevelEnabled" or default


class Process(Protocol):
    """What is used of `Serving`."""

    @property
    def service(self) -> Service: ...


class OwnedSubscriptions:
    """`broker.Subscriptions`; used once `process` has been started."""

    def __init__(self, topics: KafkaTopics, process: Process) -> None:
        self._topics = topics
        self._process = process

    @property
    def _service(self) -> Service:
        return self._process.service

    async def of(self, name: TopicName, subscription: str) -> Sequence[OwnedSubscription]:
        """The subscription on every partition. One without consumers here is asked for."""
        found: list[OwnedSubscription] = []
        for topic in await self._topics.all_of(name, create=False):
            one = self._service.find(topic, subscription)
            if not one.consumers:
                await one.refresh()  # raises SUBSCRIPTION_NOT_FOUND
            found.append(one)
        return found

    async def learn(self, name: TopicName) -> None:
        """Enter the subscriptions of a topic, which has been refreshed, among those that the process knows, as far as the journal was
        read. Those that this process serves are opened."""
        for topic in await self._topics.all_of(name, create=False):
            await self._service.served.open_all(topic)
            stored = self._service.stored(topic)
            for subscription, cursor in stored.items():
                self._service.subscription(topic, subscription).show(cursor)
            for gone in [one for one in subscriptions_of(topic).values() if one.name not in stored]:
                if not gone.consumers:
                    del topic.subscriptions[gone.name]

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
        made = [
            await self._service.find(topic, subscription).create(start, inclusive, properties or {})
            for topic in topics
        ]
        if not any(made):
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {name}"
            )

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> OwnedSubscription:
        assert isinstance(topic, KafkaTopic)
        check_subscription(subscription)
        await topic.refresh()
        if offset > topic.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{topic.name} ends at {topic.next_offset}, before {offset}"
            )
        offset = max(offset, topic.first_offset)
        one = self._service.find(topic, subscription)
        if await one.create(MessageId(topic.ledger, offset, topic.name.partition), inclusive=True):
            one.cursor.learn(offset, [])
            return one
        await one.refresh()
        if one.connected and one.type is not None and one.type.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"{subscription} is shared by consumers: none may acknowledge for all",
            )
        before = one.cursor.mark
        if exact and offset < before:
            await one.move(offset)
        elif offset > before:
            await one.skip_to(offset)
        if exact or offset > before:
            one.cursor.learn(offset, [])
        return one

    async def grow(self, name: TopicName, partitions: int) -> None:
        """As `broker.Subscriptions.grow`. Subscriptions begin on new partitions with their first messages."""
        before = await self._topics.all_of(name, create=False)
        names = {subscription for topic in before for subscription in self._service.stored(topic)}
        await self._topics.grow(name, partitions)
        known = {topic.ledger for topic in before}
        for topic in await self._topics.all_of(name, create=False):
            if topic.ledger not in known:
                for subscription in sorted(names):
                    await self._service.find(topic, subscription).create(EARLIEST)

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        found = await self.of(name, subscription)
        if not force:
            for one in found:
                await one.refresh()
            if any(one.connected for one in found):
                raise PenstockError(
                    ErrorKind.SUBSCRIPTION_BUSY,
                    f"subscription {subscription} has active connected consumers",
                )
        for one in found:
            await one.delete(force=force)
