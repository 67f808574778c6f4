"""A topic or partition as this server uses it: its log, and its producers and consumers here."""

from penstock.engines.core.topic.served import ServedTopic
from penstock.engines.shared.cluster_topic import ClusterTopic
from penstock.engines.subscription.compaction import Compaction
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce
from penstock.runtime.clock import Clock

from .documents import Documents
from .driver.fetcher import Fetcher
from .log import KafkaLog
from .naming import Place
from .schema_registry.formats import FramedSchemas


class KafkaTopic(KafkaLog, ServedTopic, ClusterTopic):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it.

    `served` are the subscriptions that run in this process: durable ones while it owns the partition's slot, and those of its
    readers.
    """

    compaction = Compaction()  # the cluster compacts

    def __init__(
        self,
        name: TopicName,
        place: Place,
        fetcher: Fetcher,
        clock: Clock,
        policies: InForce,
        documents: Documents,
        hold_ms: int,
        framings: FramedSchemas | None,
    ) -> None:
        super().__init__(name, place, fetcher, clock, framings)
        ServedTopic.__init__(self, clock, policies, hold_ms)
        ClusterTopic.__init__(self, clock, policies)
        self.documents = documents
        self.apply(policies)

    @property
    def has_clients(self) -> bool:
        """Whether producers or consumers of this process are attached, or consumers of others to what it serves."""
        subscriptions = (*self.subscriptions.values(), *self.served.values())
        return bool(self.producers) or any(one.consumers for one in subscriptions)

    @property
    def in_use(self) -> bool:
        return bool(self.has_clients or self.followers)

    def check_open(self) -> None:
        self.check_there()

    def check_there(self) -> None:
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """No producer has a topic alone: Kafka has no exclusive producers."""
