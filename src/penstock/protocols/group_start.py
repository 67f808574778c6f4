"""Subscriptions that begin at the position of a consumer group of the cluster."""

from penstock.broker.broker import Broker
from penstock.broker.capability import offered
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_subscription


async def create_at_group(
    broker: Broker, topic: TopicName, subscription: str, group: str, properties: dict[str, str] | None = None
) -> None:
    """Create a durable subscription at the position of a group. Partitions that have the subscription keep theirs.

    Raises ALREADY_EXISTS if all have it, NOT_SUPPORTED if the engine has no consumer groups, and as `GroupPositions`.
    """
    check_subscription(subscription)
    positions = await offered(broker.group_positions, "consumer groups")(topic, group)
    new = False
    for partition, position in positions.items():
        try:
            await broker.subscriptions.create(
                partition, subscription, position, inclusive=True, properties=properties
            )
            new = True
        except PenstockError as error:
            if error.kind is not ErrorKind.ALREADY_EXISTS:
                raise
    if not new:
        raise PenstockError(
            ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {topic}"
        )


async def ensure_at_group(broker: Broker, topic: TopicName, subscription: str, group: str) -> None:
    """Create a subscription as `create_at_group`, unless it exists.

    Raises also SUBSCRIPTION_NOT_FOUND if consumers may not create subscriptions of the topic.
    """
    offered(broker.group_positions, "consumer groups")
    try:
        await broker.subscriptions.of(topic, subscription)
        return
    except PenstockError as error:
        if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
            raise
        (first, *_) = await broker.topics.all_of(topic, create=False)
        if not first.figures().policies.auto_subscriptions:
            raise
    try:
        await create_at_group(broker, topic, subscription, group)
    except PenstockError as refused:
        if refused.kind is not ErrorKind.ALREADY_EXISTS:  # another request was quicker
            raise
