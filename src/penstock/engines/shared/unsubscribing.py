"""Deleting subscriptions as in Pulsar: a consumer may only if it is the only one, others only without consumers, or by force."""

from collections.abc import Iterable

from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError


def other_consumers_error() -> PenstockError:
    """The error for a consumer that is not the only one, in Pulsar's words."""
    return PenstockError(
        ErrorKind.SUBSCRIPTION_SHARED, "Unconnected or shared consumer attempting to unsubscribe"
    )


def connected_error(subscription: str) -> PenstockError:
    """The error for a deletion of a subscription that has consumers."""
    return PenstockError(
        ErrorKind.SUBSCRIPTION_BUSY, f"subscription {subscription} has active connected consumers"
    )


def check_sole_consumer(attached: Iterable[Subscription]) -> None:
    """Raise SUBSCRIPTION_SHARED if one of a consumer's subscriptions has other consumers in this process."""
    if any(len(one.consumers) > 1 for one in attached):
        raise other_consumers_error()
