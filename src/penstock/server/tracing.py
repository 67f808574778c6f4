"""Spans of HTTP requests, sent by OTLP: the extra `otel`, and the one importer of OpenTelemetry.

A request's span takes the place of its `traceparent`, so that what the endpoints put into messages names it.
"""

import random
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import __version__

from .config import StartError, TraceSettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

_RANDOM: Final = random.SystemRandom()


class Tracing:
    """An ASGI application round another that makes a span of each HTTP request."""

    def __init__(
        self, inner: ASGIApp, settings: TraceSettings, processor: "SpanProcessor | None" = None
    ) -> None:
        """`processor` takes the spans instead of OTLP. Raises StartError without the extra."""
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise StartError("trace.otlp_endpoint needs more: pip install 'penstock[otel]'") from None
        self._inner = inner
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        path: str = scope["path"]
        span = self._tracer.start_span(
            f"{scope['method']} /{path.split('/', 2)[1]}",
            context=self._propagator.extract(carrier),
            kind=self._kind,
            attributes={"http.request.method": scope["method"], "url.path": path},
        )
        out: dict[str, str] = {}
        self._propagator.inject(out, context=self._in_span(span))
        headers = [item for item in scope["headers"] if item[0] not in (b"traceparent", b"tracestate")]
        headers += [(name.encode(), value.encode()) for name, value in out.items()]

        async def sent(event: Message) -> None:
            if event["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", event["status"])
                if event["status"] >= 500:
                    span.set_status(self._failed)
            await send(event)

        try:
            await self._inner({**scope, "headers": headers}, receive, sent)
        finally:
            span.end()

    def close(self) -> None:
        """Send what waits; blocks for as long as the exporter's own timeout."""
        self._provider.shutdown()


def _ids() -> "IdGenerator":
    """Ids of spans by the system's numbers: OpenTelemetry's own change the state of the `random` module, which is the
    application's."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        def generate_span_id(self) -> int:
            return _RANDOM.randrange(1, 1 << 64)  # 0 is no id

        def generate_trace_id(self) -> int:
            return _RANDOM.randrange(1, 1 << 128)

        def is_trace_id_random(self) -> bool:
            return True

    return Ids()


def _exporter(endpoint: str) -> "SpanProcessor":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
