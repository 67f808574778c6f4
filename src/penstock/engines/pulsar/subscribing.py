"""What a consumer asks the broker of a topic for when it subscribes."""

from typing import Final

from penstock.client.enums import ConsumerType, InitialPosition, KeySharedMode
from penstock.client.policies import ConsumerKeySharedPolicy
from penstock.client.session import commands
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType

_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: ConsumerType.Exclusive,
    SubscriptionType.SHARED: ConsumerType.Shared,
    SubscriptionType.FAILOVER: ConsumerType.Failover,
    SubscriptionType.KEY_SHARED: ConsumerType.KeyShared,
}


def subscription_of(
    topic: TopicName, subscription: str, consumer: str, options: ConsumerOptions, start: MessageId
) -> commands.Subscription:
    """The subscription of a topic or partition that a consumer of these options takes part in."""
    ranges = list(options.key_ranges)
    return commands.Subscription(
        topic=str(topic),
        name=subscription,
        consumer_name=consumer,
        type=_TYPES[options.type],
        durable=options.durable,
        initial_position=InitialPosition.Earliest if start == EARLIEST else InitialPosition.Latest,
        read_compacted=options.compacted,
        properties=dict(options.properties),
        key_shared=ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=ranges) if ranges else None,
        priority=options.priority,
        subscription_properties=dict(options.subscription_properties),
    )
