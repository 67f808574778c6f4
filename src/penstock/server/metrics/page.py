"""`GET /metrics`: everything that is measured, as Prometheus or OpenMetrics text. The one importer of
prometheus_client, and only once a scraper asks."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import error_body
from penstock.protocols.http.exchange import Exchange

from . import whole
from .pipelines import Pipelines
from .requests import RequestMetrics
from .samples import Families, Family
from .topics import TopicFigures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TOPICS_AT_ONCE = 200  # then others have their turn on the loop


class MetricsPage:
    """Serves `/metrics`. `counts` says how many WebSocket and binary connections there are; `pipelines` are None if another
    process shows them."""

    def __init__(
        self,
        context: ServerContext,
        endpoints: RequestMetrics,
        counts: Callable[[], tuple[int, int]],
        pipelines: Pipelines | None,
        *,
        by_topic: bool,
    ) -> None:
        self._context = context
        self._endpoints = endpoints
        self._counts = counts
        self._by_topic = by_topic
        self._pipelines = pipelines
        self._busy = asyncio.Lock()

    async def __call__(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if scope["path"].rstrip("/") != "/metrics":
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path']}")
        if scope["method"] not in ("GET", "HEAD"):
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, f"{scope['method']} is not for /metrics")
        status, headers = 200, []
        try:
            await self._context.may_see_metrics(exchange.authorization, scope)
        except PenstockError as error:
            if error.kind is not ErrorKind.UNAUTHENTICATED:
                raise
            status, headers = 401, self._context.challenges
            body, kind = error_body(error.kind, error.message), "application/json"
        else:
            async with self._busy:  # one scrape at a time: each looks at every topic
                body, kind = await self._render(exchange.header(b"accept") or "")
        await exchange.whole(status, [(b"content-type", kind.encode()), *headers], body)

    async def _render(self, accept: str) -> tuple[bytes, str]:
        from prometheus_client.exposition import choose_encoder

        families = await self._collect()
        encode, kind = choose_encoder(accept)
        registry: Any = _Collected(families)
        # Text of many series takes long to make: not on the loop.
        return await asyncio.to_thread(encode, registry), kind

    async def _collect(self) -> list[Family]:
        context, families = self._context, Families()
        broker = context.broker
        families.gauge("pulsar_version_info", "The version", 1, version=f"penstock-{__version__}")
        whole.of_endpoints(families, self._endpoints)
        whole.of_connections(families, context.load, *self._counts())
        whole.of_refusals(families, context.audit)
        writes = broker.storage.writes
        if writes is not None:
            whole.of_writes(families, writes)
        whole.of_storage(families, broker.storage)
        whole.of_failures(families, broker.failures)
        whole.of_broker(families, broker)
        if broker.cluster is not None:
            whole.of_cluster(families, broker.cluster.figures())
        if context.fleet is not None:
            whole.of_fleet(families, context.fleet)
        figures = TopicFigures(by_topic=self._by_topic)
        for number, topic in enumerate(broker.topics.open_topics, 1):
            figures.add(topic)
            if not number % TOPICS_AT_ONCE:
                await asyncio.sleep(0)
        figures.write(families)
        if self._pipelines is not None:
            await self._pipelines.refresh()
            self._pipelines.write(families)
        return families.all()


class _Collected:
    """Families as the library's registries hand them over."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client import core
        from prometheus_client.process_collector import PROCESS_COLLECTOR

        kinds: dict[str, Any] = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for family in self._families:
            metric = kinds[family.kind](family.name, family.help, labels=family.labels)
            for labels, value in family.values:
                if isinstance(value, int | float):
                    metric.add_metric(labels, value)
                else:
                    buckets, total = [], 0
                    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
                        total += count
                        buckets.append(("+Inf" if bound == float("inf") else repr(float(bound)), total))
                    metric.add_metric(labels, buckets, value.total)
            yield metric
        yield from PROCESS_COLLECTOR.collect()
