"""A topic or partition of a cluster as this server uses it: its producers and consumers here, and their counts."""

from collections.abc import Callable, Sequence

from penstock.broker.subscription import Subscription
from penstock.broker.topic import BacklogFigures, Compaction, Publisher, TopicFigures
from penstock.model.policy import InForce
from penstock.runtime.clock import Clock
from penstock.runtime.statistics import LATENCY_MS, Histogram, Rate


class ClusterTopic:
    """`broker.Topic` without the log, which is separate. Producers and subscriptions are this server's, each entered by
    the one that makes it."""

    first_offset: int
    next_offset: int
    followers: set[Callable[[], None]]

    def __init__(self, clock: Clock, policies: InForce) -> None:
        self.policies = policies
        self.producers: dict[str, Publisher] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.rate_in = Rate(clock)
        self.write_latency: Histogram | None = None
        self.last_publish_ms = 0
        self._now_ms = clock.now_ms

    def figures(self) -> TopicFigures:
        return TopicFigures(
            policies=self.policies,
            rate_in=self.rate_in,
            last_publish_ms=self.last_publish_ms,
            write_latency=self.write_latency,
            compaction=Compaction(),  # the cluster compacts
            epoch=-1,
            used=bool(self.producers or self.subscriptions or self.next_offset > self.first_offset),
        )

    @property
    def counted(self) -> Sequence[Subscription]:
        return list(self.subscriptions.values())

    @property
    def in_use(self) -> bool:
        """Whether this server has clients of it."""
        return bool(self.producers or self.subscriptions or self.followers)

    async def measure_backlog(self) -> BacklogFigures:
        """Nothing: only the cluster measures it."""
        return BacklogFigures()

    def published(self, messages: int, size: int, took_ms: float) -> None:
        """Count stored messages."""
        self.rate_in.add(messages, size)
        self.last_publish_ms = self._now_ms()
        if self.write_latency is None:
            self.write_latency = Histogram(LATENCY_MS)
        self.write_latency.observe(took_ms)
