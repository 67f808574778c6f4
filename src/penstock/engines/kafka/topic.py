"""A topic or partition as this server uses it: its log, and who publishes and consumes here."""

from penstock.broker.topic import MetaStore
from penstock.engines.shared.cluster_topic import ClusterTopic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce
from penstock.runtime.clock import Clock

from .driver.fetcher import Fetcher
from .log import KafkaLog
from .naming import Place


class KafkaTopic(KafkaLog, ClusterTopic):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it."""

    def __init__(
        self,
        name: TopicName,
        place: Place,
        fetcher: Fetcher,
        clock: Clock,
        policies: InForce,
        documents: MetaStore,
    ) -> None:
        super().__init__(name, place, fetcher, clock)
        ClusterTopic.__init__(self, clock, policies)
        self.documents = documents

    @property
    def in_use(self) -> bool:
        consumers = any(one.consumers for one in self.subscriptions.values())
        return bool(self.producers or consumers or self.followers)

    def check_open(self) -> None:
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nobody has a topic alone: Kafka knows of no exclusive producers."""
