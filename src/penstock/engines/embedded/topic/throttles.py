"""What policies bound while messages go in and out, set where it acts when a topic opens or its policies change."""

from penstock.engines.embedded.subscription import Subscription
from penstock.model.policy import TopicRate
from penstock.runtime.clock import Clock
from penstock.runtime.throttle import PublishThrottle, Throttle

from .topic import Topic


def apply_bounds(topic: Topic, hold_ms: int) -> None:
    """Have the policies of a topic act on those who publish, and wait for `hold_ms` at most, and consume."""
    policies, clock = topic.policies, topic.clock
    publishing = topic.publish_throttle
    if publishing is not None:
        if publishing.rate != policies.publish_rate:
            publishing.change(policies.publish_rate)
    elif policies.publish_rate.bounded:
        topic.publish_throttle = PublishThrottle(policies.publish_rate, clock, hold_ms)
    topic.dispatch_throttle = _throttle(topic.dispatch_throttle, policies.dispatch_rate, clock)
    for subscription in topic.subscriptions.values():
        bound_subscription(topic, subscription)


def bound_subscription(topic: Topic, subscription: Subscription) -> None:
    """The same for one subscription, and for one that is new."""
    subscription.unacked_max = topic.policies.max_unacked_per_consumer
    rate = topic.policies.subscription_dispatch_rate
    own = subscription.throttle = _throttle(subscription.throttle, rate, topic.clock)
    subscription.limit_rate(tuple(one for one in (topic.dispatch_throttle, own) if one is not None))
    for consumer in subscription.consumers:
        consumer.bound_unacked()


def _throttle(had: Throttle | None, rate: TopicRate, clock: Clock) -> Throttle | None:
    if not rate.bounded:
        return None
    return had if had is not None and had.rate == rate else Throttle(rate, clock)
