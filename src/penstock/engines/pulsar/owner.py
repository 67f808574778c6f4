"""Who works with one consumer's half of a topic: the consumer itself, and what knows schemas."""

from collections.abc import Sequence
from typing import Protocol

from penstock.broker.delivery import Delivery
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions

from .subscription import Subscription


class ArrivingSchemas(Protocol):
    """What is known of the schemas that entries name."""

    def knows(self, topic: TopicName, version: int) -> bool:
        """Whether a version was fetched, or is known not to be there."""

    async def fetch(self, topic: TopicName, version: int) -> None:
        """Fetch a version from the cluster; raises while it cannot be asked."""


class Owner(Protocol):
    """The consumer as its topics see it."""

    options: ConsumerOptions

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Messages arrived."""

    def void(self, source: Subscription) -> Sequence[Delivery]:
        """What was not taken of a topic will come again; returns it."""

    def settled(self, count: int) -> None:
        """Messages are no longer out."""

    def grant(self) -> None:
        """There may be room for more."""

    def active(self, source: Subscription, active: bool) -> None:
        """It gets everything of a topic, or no longer."""

    def end_reached_of(self, source: Subscription) -> None:
        """A topic is terminated, and all of it acknowledged."""

    def part_ended(self, source: Subscription, error: PenstockError) -> None:
        """Nothing more comes of a topic."""
