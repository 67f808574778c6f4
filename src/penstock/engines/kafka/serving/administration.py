"""The subscriptions of the service: the owners of the partitions have them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.engines.attached.link import Attachment, LinkSink, OwnerLink
from penstock.engines.attached.subscription import Admin, attached_subscription, subscriptions_of
from penstock.engines.kafka.ownership.state import StoredCursor
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName

from .attached import OwnedSubscription, shown_properties
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
    """`LogSubscriptions`: the owner of each partition is asked. Used once `process` has been started."""

    def __init__(self, topics: KafkaTopics, process: Process) -> None:
        self._topics = topics
        self._process = process

    @property
    def _service(self) -> Service:
        return self._process.service

    def find(self, topic: KafkaTopic, name: str) -> OwnedSubscription:
        return self._service.find(topic, name)

    async def create(self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str]) -> bool:
        start = MessageId(topic.ledger, mark, topic.name.partition)
        return await self._service.find(topic, name).create(start, inclusive=True, properties=properties)

    async def skip(self, subscription: Subscription, offset: int) -> None:
        """Durable when it returns: another call may have begun a `flush` that does not know of it."""
        assert isinstance(subscription, OwnedSubscription)
        await subscription.skip_to(offset)

    def durable(self, topic: KafkaTopic) -> Mapping[str, Mapping[str, str]]:
        stored = self._service.stored(topic)
        return {name: shown_properties(cursor.properties) for name, cursor in stored.items()}

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
