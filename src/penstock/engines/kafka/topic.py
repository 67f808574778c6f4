"""A topic or partition as this server uses it: its log, and who publishes and consumes here."""

from collections.abc import Sequence

from penstock.engines.shared.cluster_topic import ClusterTopic
from penstock.engines.shared.topic_rates import TopicRates
from penstock.engines.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce, SubscriptionType
from penstock.runtime.clock import Clock

from .documents import Documents
from .driver.fetcher import Fetcher
from .framing import Framings
from .log import KafkaLog
from .naming import Place


class KafkaTopic(KafkaLog, ClusterTopic):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it.

    `served` are the subscriptions that run in this process: durable ones while it owns the partition's slot, and those of its
    readers.
    """

    def __init__(
        self,
        name: TopicName,
        place: Place,
        fetcher: Fetcher,
        clock: Clock,
        policies: InForce,
        documents: Documents,
        hold_ms: int,
        framings: Framings | None,
    ) -> None:
        super().__init__(name, place, fetcher, clock, framings)
        ClusterTopic.__init__(self, clock, policies)
        self.documents = documents
        self.served: dict[str, Subscription] = {}
        self.rates = TopicRates(clock, hold_ms)  # in this process
        self.apply(policies)

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

    def check_type(self, wanted: SubscriptionType) -> None:
        """Raise BAD_PARAMETER if policies do not enable a type of subscription."""
        enabled = self.policies.subscription_types
        if enabled and wanted not in enabled:
            names = ", ".join(one.value for one in enabled)
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"topic {self.name} enables subscriptions of the types {names}, not {wanted.value}",
            )

    @property
    def counted(self) -> Sequence[Subscription]:
        return list(self.served.values())

    @property
    def has_clients(self) -> bool:
        """Whether producers or consumers of this process are attached, or consumers of others to what it serves."""
        subscriptions = (*self.subscriptions.values(), *self.served.values())
        return bool(self.producers) or any(one.consumers for one in subscriptions)

    @property
    def in_use(self) -> bool:
        return bool(self.has_clients or self.followers)

    def check_open(self) -> None:
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nobody has a topic alone: Kafka knows of no exclusive producers."""
