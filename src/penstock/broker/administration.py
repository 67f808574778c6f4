"""What administrators do to topics, namespaces, tenants and subscriptions as a whole."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from penstock.broker.subscription import Subscription
from penstock.model.message_id import MessageId
from penstock.model.names import NamespaceName, TopicName

from .topic import Topic

# Returns the first message that a consumer group of the cluster has not committed, by partition of a topic. A partition without a
# commit, or with one that does not fit it, has its first message. Raises TOPIC_NOT_FOUND, BAD_PARAMETER if the group has committed
# nothing in the topic, FORBIDDEN, UNAVAILABLE.
GroupPositions = Callable[[TopicName, str], Awaitable[Mapping[TopicName, MessageId]]]


class Administration(Protocol):
    """Topics, namespaces and tenants as a whole."""

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        """Delete a topic, and its schemas when `schema`; raises TOPIC_NOT_FOUND, TOPIC_IN_USE."""

    async def unload_topic(self, name: TopicName) -> None:
        """Disconnect producers and consumers once every cursor is saved: clients come back by themselves.

        Raises TOPIC_NOT_FOUND. A subscription that is not durable waits for its reader.
        """

    async def trim_topic(self, name: TopicName, *, everything: bool = False) -> None:
        """Delete the acknowledged messages that retention does not keep, or every message; raises TOPIC_NOT_FOUND."""

    async def compact_topic(self, name: TopicName) -> None:
        """Begin a compaction; raises TOPIC_NOT_FOUND."""

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Delete a namespace; raises NAMESPACE_IN_USE while it has topics, unless `force`."""

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        """Delete a tenant; raises NOT_FOUND, NAMESPACE_IN_USE while it has namespaces, unless `force`."""


class Subscriptions(Protocol):
    """Subscriptions over all partitions of their topics."""

    async def of(self, name: TopicName, subscription: str) -> Sequence[Subscription]:
        """The subscription on every partition of a topic; raises TOPIC_NOT_FOUND, SUBSCRIPTION_NOT_FOUND."""

    async def create(
        self,
        name: TopicName,
        subscription: str,
        start: MessageId,
        *,
        inclusive: bool = False,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Create a durable subscription without a consumer; raises ALREADY_EXISTS."""

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> Subscription:
        """Count everything below `offset` as acknowledged, creating the subscription if missing.

        Only `exact` moves it back. The caller flushes it. Raises BAD_PARAMETER past the end, and for a subscription
        that consumers share.
        """

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Let a topic have more partitions, which get its durable subscriptions.

        Raises BAD_PARAMETER, FEWER_PARTITIONS, TOPIC_NOT_FOUND.
        """

    async def delete(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription; raises SUBSCRIPTION_BUSY while it has consumers, unless `force`."""
