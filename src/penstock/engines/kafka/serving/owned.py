"""Durable subscriptions as the endpoints of every process see them: the owner of the partition has them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.schemas import Schemas
from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.engines.attached.entry_answers import AttachedEntryAnswers, WholeEntries
from penstock.engines.attached.link import Moved
from penstock.engines.attached.subscription import (
    RANGES_MAX,
    Admin,
    attached_subscription,
    subscription_deleted,
    subscriptions_of,
)
from penstock.engines.attached.subscription import Subscription as AttachedSubscription
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.shared.unsubscribing import connected_error, other_consumers_error
from penstock.engines.subscription.cursors import CLIENTS_BY_INDEX
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName

from .links import OwnerLinks, Owners
from .served import ServedSubscription, ServedSubscriptions
from .state import StoredCursor
from .stored import fitted

MISSING_MAX: Final = 10_000


class DeliveredSchemas:
    """`attached.ArrivingSchemas`. `catch_up` learns everything that processes have stored until now."""

    def __init__(self, schemas: Schemas, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._schemas = schemas
        self._catch_up = catch_up
        self._missing: dict[tuple[TopicName, int], None] = {}  # versions that do not exist

    def knows(self, topic: TopicName, version: int) -> bool:
        if (topic, version) in self._missing:
            return True
        try:
            self._schemas.version(topic, version)
        except PenstockError:
            return False
        return True

    async def fetch(self, topic: TopicName, version: int) -> None:
        """As `ArrivingSchemas.fetch`. A version is stored before the entries that name it: it exists now, or never will."""
        await self._catch_up()
        try:
            await self._schemas.find_version(topic, version)
        except PenstockError as error:
            if error.kind is not ErrorKind.SCHEMA_NOT_FOUND:
                raise
            self._missing[topic, version] = None
            if len(self._missing) > MISSING_MAX:
                del self._missing[next(iter(self._missing))]


class OwnedSubscription(AttachedSubscription):
    """`broker.Subscription`. What this process serves is asked and changed here, all else by `admin`, the owner's REST.

    Methods raise `Moved`, which is retriable, while the partition has no owner.
    """

    topic: KafkaTopic

    def __init__(
        self, served: ServedSubscriptions, owners: Owners, admin: Admin, topic: KafkaTopic, name: str
    ) -> None:
        super().__init__(admin, topic, name)
        self._served = served
        self._owners = owners
        self.entry_answers = AttachedEntryAnswers(self, topic.ledger)
        self.partial_batches = WholeEntries()
        self._skipped = -1  # everything below is acknowledged by `flush`

    async def here(self) -> ServedSubscription | None:
        """The subscription, if this process serves it; None if another one does. Raises SUBSCRIPTION_NOT_FOUND."""
        transient = self.topic.served.get(self.name)
        if isinstance(transient, ServedSubscription) and not transient.durable:
            return transient
        if not self._owners.is_here(self.topic.name):
            if FOR_PROCESS.get():
                raise Moved(self.topic.name)  # the process that asks looks for the owner again
            return None
        found = await self._served.find(self.topic, self.name)
        if found is None:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, f"{self.topic.name} has no subscription {self.name}"
            )
        return found

    # -- queries

    async def refresh(self) -> None:
        await self.topic.refresh()
        found = await self.here()
        if found is None:
            await super().refresh()
        else:
            self._learn_here(found)

    def _learn_here(self, found: ServedSubscription) -> None:
        self._show_cursor(found.cursor)
        figures = found.figures()
        self.backlog, self.delayed, self.unacked = figures.backlog, figures.delayed, figures.unacked
        self.redelivered, self.connected = figures.redelivered, figures.connected
        self.durable, self.properties = figures.durable, dict(figures.properties)
        self.type = figures.type or self.type

    def show(self, stored: StoredCursor) -> None:
        """Have the figures be those of the journal: at other processes than the owner they are as of the last saves."""
        found = self.topic.served.get(self.name)
        if isinstance(found, ServedSubscription) and found.durable:
            self._learn_here(found)
            return
        begin, end = self.topic.first_offset, self.topic.next_offset
        cursor, _ = fitted(stored, self.topic.place.topic_id, begin, end)
        self._show_cursor(cursor)
        self.backlog = max(0, end - cursor.mark - cursor.beyond)
        self.delayed = self.unacked = 0  # the owner knows
        self.properties = shown_properties(stored.properties)

    def _show_cursor(self, cursor: OffsetSet) -> None:
        self.cursor.learn(cursor.mark, list(islice(cursor.ranges(), RANGES_MAX)))
        self.cursor.beyond = cursor.beyond

    async def check_sole_consumer(self) -> None:
        found = await self.here()
        if found is None:
            await super().check_sole_consumer()
        elif len(found.consumers) > 1:
            raise other_consumers_error()

    async def consumer_properties(self) -> Sequence[Mapping[str, str]]:
        """What its consumers say of themselves, in any process."""
        found = await self.here()
        if found is not None:
            return [consumer.options.properties for consumer in found.consumers]
        return [one.get("metadata") or {} for one in (await self._stats()).get("consumers") or ()]

    def delivered(self, messages: int, size: int) -> None:
        """The owner counts them."""

    async def exists(self) -> bool:
        try:
            return await self.here() is not None or await super().exists()
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                raise
            return False

    # -- changes

    async def create(
        self, start: MessageId, inclusive: bool = False, properties: Mapping[str, str] | None = None
    ) -> bool:
        """Create it after a message, or with it; returns whether it is new."""
        if self._owners.is_here(self.topic.name):
            await self.topic.refresh()
            mark = await self.topic.offset_after(start, inclusive=inclusive)
            _, new = await self._served.create(self.topic, self.name, mark, properties)
            return new
        if FOR_PROCESS.get():
            raise Moved(self.topic.name)
        body = {**_position(start), "excluded": not inclusive}
        if properties:
            body["properties"] = dict(properties)
        try:
            await self._admin.call("PUT", self._target(), body=body)
        except PenstockError as error:
            if error.kind is not ErrorKind.ALREADY_EXISTS:
                raise
            return False
        return True

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        found = None if self.consumers else await self.here()
        if found is None:
            await super().seek(target, inclusive=inclusive)
        else:
            await found.seek(target, inclusive=inclusive)

    def _moved(self) -> None:
        if self.name not in self.topic.served:  # else it has notified them, before it delivered anything
            super()._moved()

    async def move(self, offset: int) -> None:
        """As `Subscription.move`, up to the end of the log: the ids of messages are their offsets."""
        await self.seek(self._id(offset), inclusive=True)
        self.cursor.learn(offset, [])

    def skip(self, offset: int) -> None:
        """As `Subscription.skip`; `flush` does it."""
        self._skipped = max(self._skipped, offset)

    async def flush(self) -> None:
        # Before anything is awaited: another call answers for its own.
        offset, self._skipped = self._skipped, -1
        if offset >= 0:
            await self.skip_to(offset)

    async def skip_to(self, offset: int) -> None:
        """Acknowledge everything below an offset, durably."""
        found = await self.here()
        if found is not None:
            found.skip(offset)
            await found.flush()
        elif offset > 0:
            last = self._id(min(offset, self.topic.next_offset) - 1)
            await self._admin.call("POST", self._target("expireMessages"), body=_position(last))
        if offset > self.cursor.mark:
            self.cursor.learn(offset, [])

    async def set_properties(self, properties: dict[str, str]) -> None:
        found = await self.here()
        if found is None:
            await super().set_properties(properties)
            return
        await found.set_properties(dict(properties))
        self.properties = dict(properties)

    async def delete(self, *, force: bool = True) -> None:
        found = await self.here()
        if found is None:
            await super().delete(force=force)
            return
        if found.consumers and not force:
            raise connected_error(self.name)
        for consumer in list(self.consumers):
            consumer.close(subscription_deleted(self.name))
        await found.delete()

    def _id(self, offset: int) -> MessageId:
        return MessageId(self.topic.ledger, offset, self.topic.name.partition)


def _position(of: MessageId) -> dict[str, Any]:
    return {"ledgerId": of.ledger, "entryId": of.entry, "partitionIndex": of.partition, "batchIndex": -1}


def shown_properties(document: bytes | None) -> dict[str, str]:
    """The properties of a stored cursor, without those of the server's own."""
    found = {} if document is None else msgspec.json.decode(document, type=dict[str, str])
    found.pop(CLIENTS_BY_INDEX, None)
    return found


class Service:
    """`attached.Cluster` and `LogSubscriptions`: the owner of each partition has its subscriptions, in any process."""

    numbered = True

    def __init__(
        self,
        topics: KafkaTopics,
        links: OwnerLinks,
        served: ServedSubscriptions,
        owners: Owners,
        admin: Admin,
    ) -> None:
        self._topics = topics
        self.link_to = links.link_to
        self._served = served
        self._owners = owners
        self._admin = admin

    def subscription(self, topic: Topic, name: str) -> OwnedSubscription:
        """The subscription of that name, as all consumers of this process see it."""
        made = attached_subscription(self._make, topic, name)
        assert isinstance(made, OwnedSubscription)
        return made

    async def consumers(self, log: TopicName, name: str) -> Sequence[Mapping[str, str]]:
        """The properties of all consumers of a subscription, in any process."""
        topic = await self._topics.get(log, create=False)
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

    def _make(self, topic: Topic, name: str) -> OwnedSubscription:
        assert isinstance(topic, KafkaTopic)
        return OwnedSubscription(self._served, self._owners, self._admin, topic, name)

    def flag(self, name: str, default: bool = False) -> bool:
        """Owners keep acknowledgements of messages in batches."""
        return name == "acknowledgmentAtBatchIndexLevelEnabled" or default

    async def create(self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str]) -> bool:
        start = MessageId(topic.ledger, mark, topic.name.partition)
        return await self.find(topic, name).create(start, inclusive=True, properties=properties)

    async def skip(self, subscription: Subscription, offset: int) -> None:
        """Durable when it returns: another call may have begun a `flush` that does not know of it."""
        assert isinstance(subscription, OwnedSubscription)
        await subscription.skip_to(offset)

    def durable(self, topic: KafkaTopic) -> Mapping[str, Mapping[str, str]]:
        stored = self._owners.stored(topic.name)
        return {name: shown_properties(cursor.properties) for name, cursor in stored.items()}

    async def learn(self, name: TopicName) -> None:
        """Enter the subscriptions of a topic, which has been refreshed, among those that the process knows, as far as the journal was
        read. Those that this process serves are opened."""
        for topic in await self._topics.all_of(name, create=False):
            await self._served.open_all(topic)
            stored = self._owners.stored(topic.name)
            for subscription, cursor in stored.items():
                self.subscription(topic, subscription).show(cursor)
            for gone in [one for one in subscriptions_of(topic).values() if one.name not in stored]:
                if not gone.consumers:
                    del topic.subscriptions[gone.name]
