"""A topic or partition as this server uses it: its log, and who publishes and consumes here."""

from typing import NoReturn

from penstock.broker.settings import BrokerSettings
from penstock.engines.shared.cluster_topic import ClusterTopic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce, Quota, Retention
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster
from .log import PulsarLog


class NoDocuments:
    """`broker.MetaStore` where nothing is kept beside the logs."""

    def load_meta(self, kind: str) -> NoReturn:
        raise _nothing_kept()

    def save_meta(self, documents: object) -> NoReturn:
        raise _nothing_kept()


class PulsarTopic(PulsarLog, ClusterTopic):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it."""

    documents = NoDocuments()

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock, policies: InForce) -> None:
        super().__init__(name, cluster, clock)
        ClusterTopic.__init__(self, clock, policies)

    def sweep(self) -> None:
        """Close readers that are not used, and forget subscriptions without consumers here."""
        super().sweep()
        for name, subscription in list(self.subscriptions.items()):
            if not subscription.consumers:
                del self.subscriptions[name]

    def check_open(self) -> None:
        if self.terminated:
            raise PenstockError(ErrorKind.TOPIC_TERMINATED, f"{self.name} is terminated")
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nothing is known of other producers: the cluster refuses a producer that may not be there."""


def policies_of(settings: BrokerSettings, *, deduplication: bool) -> InForce:
    """What counts here for a topic: bounds and retention are the cluster's."""
    return InForce(
        Retention(),
        0,
        Quota(),
        Quota(),
        deduplication,
        settings.max_producers_per_topic,
        settings.max_consumers_per_topic,
        settings.max_consumers_per_subscription,
        settings.max_subscriptions_per_topic,
    )


def _nothing_kept() -> PenstockError:
    return PenstockError(
        ErrorKind.NOT_SUPPORTED, "the engine behind this server keeps nothing beside the cluster's logs"
    )
