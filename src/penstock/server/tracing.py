"""Spans of HTTP requests, sent by OTLP: the extra `otel`, and the one importer of OpenTelemetry.

A request's span takes the place of its `traceparent`, so that what the endpoints put into messages names it.
"""

import random
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.protocols.http.exchange import NO_ANSWER, Exchange

from .config import StartError, TraceSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Span, Status

_RANDOM: Final = random.SystemRandom()


class Tracing:
    """Makes a span of each HTTP request."""

    def __init__(self, settings: TraceSettings, processor: "SpanProcessor | None" = None) -> None:
        """`processor` takes the spans instead of OTLP. Raises StartError without the extra."""
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise StartError("trace.otlp_endpoint needs more: pip install 'penstock[otel]'") from None
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": settings.service_name, "service.version": __version__}),
            id_generator=_ids(),
        )
        self._provider.add_span_processor(processor or _exporter(settings.otlp_endpoint))
        self._tracer = self._provider.get_tracer("penstock", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._kind = trace.SpanKind.SERVER
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._in_span = trace.set_span_in_context

    def begin(self, exchange: Exchange) -> "RequestSpan":
        """Begin the span of a request."""
        scope = exchange.scope
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        path: str = scope["path"]
        span = self._tracer.start_span(
            f"{exchange.method} /{path.split('/', 2)[1]}",
            context=self._propagator.extract(carrier),
            kind=self._kind,
            attributes={"http.request.method": exchange.method, "url.path": path},
        )
        out: dict[str, str] = {}
        self._propagator.inject(out, context=self._in_span(span))
        headers = [item for item in scope["headers"] if item[0] not in (b"traceparent", b"tracestate")]
        scope["headers"] = [*headers, *((name.encode(), value.encode()) for name, value in out.items())]
        exchange.traceable = True
        return RequestSpan(span, self._failed)

    def close(self) -> None:
        """Send what waits; blocks for as long as the exporter's own timeout."""
        self._provider.shutdown()


class RequestSpan:
    """The span of a request that is being answered."""

    __slots__ = ("_failed", "_span")

    def __init__(self, span: "Span", failed: "Status") -> None:
        self._span = span
        self._failed = failed

    def end(self, status: int) -> None:
        """The request is over, answered with `status` unless its peer was gone."""
        if status != NO_ANSWER:
            self._span.set_attribute("http.response.status_code", status)
            if status >= 500:
                self._span.set_status(self._failed)
        self._span.end()


def _ids() -> "IdGenerator":
    """Ids of spans by the system's numbers: OpenTelemetry's own change the state of the `random` module, which is the
    application's."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        def generate_span_id(self) -> int:
            return _RANDOM.randrange(1, 1 << 64)  # 0 is not an id

        def generate_trace_id(self) -> int:
            return _RANDOM.randrange(1, 1 << 128)

        def is_trace_id_random(self) -> bool:
            return True

    return Ids()


def _exporter(endpoint: str) -> "SpanProcessor":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
