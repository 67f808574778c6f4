"""The rates that policies bound of one topic, in this process: of publishing, and of delivery."""

from typing import Protocol

from penstock.model.errors import PenstockError
from penstock.model.policy import InForce, TopicRate
from penstock.runtime.clock import Clock
from penstock.runtime.throttle import PublishThrottle, Throttle


class Throttled(Protocol):
    """A subscription, as far as its rate is bounded."""

    throttle: Throttle | None

    def limit_rate(self, throttles: tuple[Throttle, ...]) -> None:
        """Deliver no faster than these allow."""


class TopicRates:
    """Which rates are in force. Publishes wait at most `hold_ms`. `publish` is None while nothing bounds publishing."""

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
