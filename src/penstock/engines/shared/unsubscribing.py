"""Unsubscribing as in Pulsar: a consumer may delete its subscription only if it is the only consumer."""

from collections.abc import Iterable

from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError


def other_consumers_error() -> PenstockError:
    """The error for a consumer that is not the only one, in Pulsar's words."""
    return PenstockError(
        ErrorKind.SUBSCRIPTION_SHARED, "Unconnected or shared consumer attempting to unsubscribe"
    )


def check_sole_consumer(attached: Iterable[Subscription]) -> None:
    """Raise SUBSCRIPTION_SHARED if one of a consumer's subscriptions has other consumers in this process."""
    if any(len(one.consumers) > 1 for one in attached):
        raise other_consumers_error()
