"""How many may use a topic at once: each check raises before anything is changed. 0 bounds nothing, as in Pulsar."""

from penstock.engines.embedded.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import SubscriptionType

from .producer import Producer
from .topic import Topic


def check_producers(topic: Topic, producer: Producer) -> None:
    """Raise PRODUCER_BUSY where a topic has as many producers as it may; who comes back takes its own place."""
    most = topic.policies.max_producers
    if producer.options.shared_name or producer.name in topic.producers:
        return
    if 0 < most <= len(topic.producers):
        raise PenstockError(
            ErrorKind.PRODUCER_BUSY, f"topic {topic.name} has {most} producers: no more are allowed"
        )


def check_consumers(topic: Topic, subscription: Subscription) -> None:
    """Raise CONSUMER_BUSY where a subscription or its topic has as many consumers as it may."""
    policies = topic.policies
    if 0 < policies.max_consumers_per_subscription <= len(subscription.consumers):
        raise PenstockError(
            ErrorKind.CONSUMER_BUSY,
            f"subscription {subscription.name} has {len(subscription.consumers)} consumers: "
            "no more are allowed",
        )
    if 0 < policies.max_consumers <= topic.consumer_count:
        raise PenstockError(
            ErrorKind.CONSUMER_BUSY,
            f"topic {topic.name} has {topic.consumer_count} consumers: no more are allowed",
        )


def check_type(topic: Topic, wanted: SubscriptionType) -> None:
    """Raise BAD_PARAMETER where a topic's policies do not enable a type of subscription."""
    enabled = topic.policies.subscription_types
    if enabled and wanted not in enabled:
        names = ", ".join(one.value for one in enabled)
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"topic {topic.name} enables subscriptions of the types {names}, not {wanted.value}",
        )


def check_auto_subscription(topic: Topic, name: str) -> None:
    """Raise SUBSCRIPTION_NOT_FOUND where policies do not let consumers create durable subscriptions."""
    if not topic.policies.auto_subscriptions:
        raise PenstockError(
            ErrorKind.SUBSCRIPTION_NOT_FOUND,
            f"{topic.name} has no subscription {name}, and autoSubscriptionCreation is off",
        )


def check_subscriptions(topic: Topic) -> None:
    """Raise TOO_MANY_SUBSCRIPTIONS where a topic has as many as it may."""
    most = topic.policies.max_subscriptions
    if 0 < most <= len(topic.subscriptions):
        raise PenstockError(
            ErrorKind.TOO_MANY_SUBSCRIPTIONS,
            f"topic {topic.name} has {most} subscriptions: no more are allowed",
        )
