"""A topic or partition whose subscriptions run in this process, and the rates that policies bound: its log is another class."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.engines.subscription import Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.receiver import SubscribedLog
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import InForce, SubscriptionType, TopicRate
from penstock.runtime.clock import Clock
from penstock.runtime.throttle import PublishThrottle, Throttle


class Throttled(Protocol):
    """A subscription, as far as its rate is bounded."""

    throttle: Throttle | None

    def limit_rate(self, throttles: tuple[Throttle, ...]) -> None:
        """Deliver no faster than these allow."""


class TopicRates:
    """The effective rates. Publishes wait at most `hold_ms`. `publish` is None if publishing has no limit."""

    def __init__(self, clock: Clock, hold_ms: int) -> None:
        self.publish: PublishThrottle | None = None
        self._clock = clock
        self._hold_ms = hold_ms
        self._dispatch: Throttle | None = None

    def apply(self, policies: InForce) -> None:
        """Have these policies bound the topic from now on; `bound` its subscriptions after this."""
        if self.publish is not None:
            if self.publish.rate != policies.publish_rate:
                self.publish.change(policies.publish_rate)
        elif policies.publish_rate.bounded:
            self.publish = PublishThrottle(policies.publish_rate, self._clock, self._hold_ms)
        self._dispatch = self._throttle(self._dispatch, policies.dispatch_rate)

    def bound(self, policies: InForce, subscription: Throttled) -> None:
        """Have them bound a subscription."""
        own = subscription.throttle = self._throttle(
            subscription.throttle, policies.subscription_dispatch_rate
        )
        subscription.limit_rate(tuple(one for one in (self._dispatch, own) if one is not None))

    def _throttle(self, had: Throttle | None, rate: TopicRate) -> Throttle | None:
        if not rate.bounded:
            return None
        return had if had is not None and had.rate == rate else Throttle(rate, self._clock)

    def end(self, why: PenstockError) -> None:
        """Publishes that wait fail with `why`, now and later."""
        if self.publish is not None:
            self.publish.end(why)


if TYPE_CHECKING:

    class _Log(SubscribedLog, Protocol):
        def check_there(self) -> None:
            """Raise TOPIC_NOT_FOUND once the topic is deleted."""
else:
    _Log = object  # the properties of a protocol could not be set


class ServedTopic(_Log):
    """The subscriptions of a topic, and what its policies bound. Of a limit, 0 bounds nothing, as in Pulsar."""

    compaction: Compaction
    policies: InForce

    def __init__(self, clock: Clock, policies: InForce, hold_ms: int) -> None:
        """Publishes wait at most `hold_ms` for a rate. The class of the topic calls `apply` once it is complete."""
        self.served: dict[str, Subscription] = {}
        self.rates = TopicRates(clock, hold_ms)
        self.policies = policies

    def rewound(self) -> None:
        """A cursor went back, or a new one is behind the end: the backlog may be larger than it was."""

    @property
    def consumer_count(self) -> int:
        """Of all subscriptions that run here together."""
        return sum(len(one.consumers) for one in self.served.values())

    @property
    def counted(self) -> Sequence[Subscription]:
        return list(self.served.values())

    # -- its policies

    def apply(self, policies: InForce) -> None:
        """Have these policies bound the topic from now on."""
        self.policies = policies
        self.rates.apply(policies)
        for subscription in self.served.values():
            self.bound(subscription)

    def bound(self, subscription: Subscription) -> None:
        """Have the topic's policies bound a subscription."""
        subscription.unacked_max = self.policies.max_unacked_per_consumer
        self.rates.bound(self.policies, subscription)
        for consumer in subscription.consumers:
            consumer.bound_unacked()

    def check_consumer(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        """Raise BAD_PARAMETER, CONSUMER_BUSY unless one more consumer of this type may take part."""
        self.check_type(wanted)
        kind, count = ErrorKind.CONSUMER_BUSY, len(subscription.consumers)
        most = self.policies.max_consumers_per_subscription
        check_room(kind, most, count, f"subscription {subscription.name} has {count} consumers")
        most, count = self.policies.max_consumers, self.consumer_count
        check_room(kind, most, count, f"topic {self.name} has {count} consumers")

    def check_type(self, wanted: SubscriptionType) -> None:
        """Raise BAD_PARAMETER if policies do not enable a type of subscription."""
        enabled = self.policies.subscription_types
        if enabled and wanted not in enabled:
            names = ", ".join(one.value for one in enabled)
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"topic {self.name} enables subscriptions of the types {names}, not {wanted.value}",
            )

    def check_subscriptions(self, count: int) -> None:
        """Raise TOO_MANY_SUBSCRIPTIONS if a topic with `count` subscriptions may have no more."""
        most, kind = self.policies.max_subscriptions, ErrorKind.TOO_MANY_SUBSCRIPTIONS
        check_room(kind, most, count, f"topic {self.name} has {most} subscriptions")


def check_room(kind: ErrorKind, most: int, count: int, what: str) -> None:
    """Raise `kind` if `count` are as many as there may be; `what` says so."""
    if 0 < most <= count:
        raise PenstockError(kind, f"{what}: no more are allowed")
