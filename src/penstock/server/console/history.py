"""What the server did in the last hours: samples in a bounded ring in memory, for charts without a Prometheus."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from penstock.protocols.context import ServerContext
from penstock.runtime.statistics import SECONDS, Histogram
from penstock.runtime.tasks import Slices
from penstock.server.metrics.requests import RequestMetrics

PERIOD_MS: Final = 10_000
_MS: Final = 1000


class Totals(msgspec.Struct):
    """The counters of open topics, and current sizes."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    requests: int = 0
    backlog: int = 0
    size_bytes: int = 0


class Sample(msgspec.Struct, frozen=True):
    """One point of every chart. Rates are a second, over the time since the sample before; latencies are in ms.

    A latency is null if nothing was measured in that time.
    """

    at: int  # ms since the epoch
    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    requests: float
    request_p50: float | None
    request_p99: float | None
    commit_p50: float | None
    commit_p99: float | None
    backlog: int
    size_bytes: int
    connections: int
    websockets: int
    binary: int


class History:
    """Samples of a server; `counts` says how many WebSocket and binary connections there are."""

    def __init__(
        self,
        context: ServerContext,
        requests: RequestMetrics,
        counts: Callable[[], tuple[int, int]],
        hours: float,
    ) -> None:
        self._context = context
        self._requests = requests
        self._counts = counts
        self._samples: deque[Sample] = deque(maxlen=max(2, int(hours * 3_600_000 / PERIOD_MS)))
        self._last = Totals()
        self._last_at = context.broker.clock.monotonic_ms()
        self._latency = Histogram(SECONDS)
        self._commits = Histogram(SECONDS)
        self._sampling = False

    def look(self) -> None:
        """Take a sample if one is due; called at intervals."""
        broker = self._context.broker
        if not self._sampling and broker.clock.monotonic_ms() - self._last_at >= PERIOD_MS:
            self._sampling = True
            broker.tasks.spawn(self._run(), "sample the server's figures")

    async def _run(self) -> None:
        try:
            await self.sample()
        finally:
            self._sampling = False

    async def sample(self) -> None:
        """Add a sample of now."""
        broker = self._context.broker
        totals = await self._totals()
        now, last = broker.clock.monotonic_ms(), self._last
        seconds = max(1, now - self._last_at) / _MS

        def rate(name: str) -> float:
            # Topics that were deleted take what they counted with them.
            return round(float(max(0, getattr(totals, name) - getattr(last, name))) / seconds, 3)

        latency = Histogram(SECONDS)
        for each in self._requests.seconds.values():
            latency.add(each)
        commits = Histogram(SECONDS)
        if (writes := broker.storage.writes) is not None:
            commits.add(writes.commits)
        websockets, binary = self._counts()
        load = self._context.load
        self._samples.append(
            Sample(
                at=broker.clock.now_ms(),
                **{
                    name: rate(name)
                    for name in ("messages_in", "bytes_in", "messages_out", "bytes_out", "requests")
                },
                request_p50=_quantile(latency, self._latency, 0.5),
                request_p99=_quantile(latency, self._latency, 0.99),
                commit_p50=_quantile(commits, self._commits, 0.5),
                commit_p99=_quantile(commits, self._commits, 0.99),
                backlog=totals.backlog,
                size_bytes=totals.size_bytes,
                connections=load.connections,
                websockets=websockets,
                binary=binary,
            )
        )
        self._last, self._last_at, self._latency, self._commits = totals, now, latency, commits

    async def _totals(self) -> Totals:
        totals, slices = Totals(requests=sum(self._requests.requests.values())), Slices()
        for topic in list(self._context.broker.topics.open_topics):
            await slices.step()
            rate_in = topic.figures().rate_in
            totals.messages_in += rate_in.messages
            totals.bytes_in += rate_in.bytes
            totals.size_bytes += topic.bounds.size_bytes
            for subscription in topic.counted:
                figures = subscription.figures()
                totals.messages_out += figures.rate_out.messages
                totals.bytes_out += figures.rate_out.bytes
                totals.backlog += figures.backlog
        return totals

    def columns(self, since: int = 0) -> dict[str, list[Any]]:
        """The samples after a time (ms since the epoch), by field."""
        samples: Sequence[Sample] = [each for each in self._samples if each.at > since]
        return {name: [getattr(each, name) for each in samples] for name in Sample.__struct_fields__}


def _quantile(now: Histogram, before: Histogram, share: float) -> float | None:
    """A quantile in ms of what came between two states of a histogram, by its buckets; the last has no end."""
    counts = [new - old for new, old in zip(now.counts, before.counts, strict=True)]
    total = sum(counts)
    if total <= 0:
        return None
    wanted, seen, least = share * total, 0, 0.0
    for bound, count in zip(now.bounds, counts, strict=False):
        if count and seen + count >= wanted:
            return round((least + (bound - least) * (wanted - seen) / count) * _MS, 3)
        seen += count
        least = bound
    return round(least * _MS, 3)
