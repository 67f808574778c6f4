"""A topic or partition as this server uses it: its log, and who publishes and consumes here."""

import msgspec

from penstock.broker.subscription import Subscription
from penstock.broker.topic import MetaStore, Publisher
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import InForce
from penstock.runtime.clock import Clock
from penstock.runtime.statistics import LATENCY_MS, Histogram, Rate

from .driver.fetcher import Fetcher
from .log import KafkaLog
from .naming import Place


class Backlog(msgspec.Struct, frozen=True):
    """`broker.BacklogFigures`: there are no quotas to measure it for."""

    bytes: int = 0
    oldest_ms: int = 0
    empty: bool = True


class NoCompaction(msgspec.Struct, frozen=True):
    """`broker.Compaction`: Kafka compacts by itself."""

    status: str = "NOT_RUN"
    last_error: str = ""


class KafkaTopic(KafkaLog):
    """`broker.Topic`. Producers and subscriptions are this server's, each entered by the one that makes it."""

    compaction = NoCompaction()
    epoch = -1

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
        self.policies = policies
        self.documents = documents
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
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nobody has a topic alone: Kafka knows of no exclusive producers."""

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
