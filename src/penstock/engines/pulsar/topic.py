"""A topic or partition as this server uses it: its log, and who publishes and consumes here."""

from typing import NoReturn

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.subscription import Subscription
from penstock.broker.topic import Publisher
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce, Quota, Retention
from penstock.runtime.clock import Clock
from penstock.runtime.statistics import LATENCY_MS, Histogram, Rate

from .cluster import PulsarCluster
from .log import PulsarLog


class Backlog(msgspec.Struct, frozen=True):
    """`broker.BacklogFigures`: the cluster measures it."""

    bytes: int = 0
    oldest_ms: int = 0
    empty: bool = True


class NoCompaction(msgspec.Struct, frozen=True):
    """`broker.Compaction`: the cluster compacts."""

    status: str = "NOT_RUN"
    last_error: str = ""


class NoDocuments:
    """`broker.MetaStore` where nothing is kept beside the logs."""

    def load_meta(self, kind: str) -> NoReturn:
        raise _nothing_kept()

    def save_meta(self, documents: object) -> NoReturn:
        raise _nothing_kept()


class PulsarTopic(PulsarLog):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it."""

    documents = NoDocuments()
    compaction = NoCompaction()
    epoch = -1

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock, policies: InForce) -> None:
        super().__init__(name, cluster, clock)
        self.policies = policies
        self.producers: dict[str, Publisher] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.rate_in = Rate(clock)
        self.write_latency: Histogram | None = None
        self.last_publish_ms = 0

    @property
    def used(self) -> bool:
        return bool(self.producers or self.subscriptions or self.next_offset > self.first_offset)

    @property
    def in_use(self) -> bool:
        """Whether this server has clients of it."""
        return bool(self.producers or self.subscriptions or self.followers)

    async def measure_backlog(self) -> Backlog:
        return Backlog()

    def check_open(self) -> None:
        if self.terminated:
            raise PenstockError(ErrorKind.TOPIC_TERMINATED, f"{self.name} is terminated")
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nothing is known of other producers: the cluster refuses a producer that may not be there."""

    def last_sequence_id(self, producer: str) -> int:
        found = self.producers.get(producer)
        return -1 if found is None else found.last_sequence_id

    def published(self, messages: int, size: int, took_ms: float) -> None:
        """Count what was stored."""
        self.rate_in.add(messages, size)
        self.last_publish_ms = self.clock.now_ms()
        if self.write_latency is None:
            self.write_latency = Histogram(LATENCY_MS)
        self.write_latency.observe(took_ms)


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
