"""The interface, for programs: OpenAPI of all HTTP endpoints, AsyncAPI of the WebSocket one."""

from typing import Any, Final

from msgspec import structs

from penstock import __version__
from penstock.model.errors import ErrorKind
from penstock.protocols.admin.routes import OPERATIONS as ADMIN
from penstock.protocols.confluent.proxy.operations import OPERATIONS as REST_PROXY
from penstock.protocols.confluent.registry.operations import OPERATIONS as REGISTRY
from penstock.protocols.context import ServerContext
from penstock.protocols.http.examples import example_of
from penstock.protocols.http.openapi import document
from penstock.protocols.http.operations import Operation
from penstock.protocols.kafka_rest.endpoint import OPERATIONS as KAFKA_REST
from penstock.protocols.rest.endpoint import OPERATIONS
from penstock.protocols.rest.stages import OPERATIONS as STAGES
from penstock.protocols.websocket import asyncapi as websocket

from .console.operations import OPERATIONS as CONSOLE
from .console.tail import OPERATION as TAIL

_HEALTH: Final = (
    Operation(
        method="GET",
        path="/health/live",
        tag="health",
        summary="Whether the process runs.",
        answer=dict[str, str],
    ),
    Operation(
        method="GET",
        path="/health/ready",
        tag="health",
        summary="Whether the server takes work; 503 while it shuts down, or its storage takes no writes.",
        answer=dict[str, str | int | dict[str, int]],
        errors=(ErrorKind.UNAVAILABLE, ErrorKind.STORAGE_FULL, ErrorKind.STORAGE_FAILED),
    ),
    Operation(
        method="GET",
        path="/metrics",
        tag="health",
        summary="Everything that is measured, for Prometheus; OpenMetrics where it is accepted.",
        answers=("text/plain", "application/openmetrics-text"),
        errors=(ErrorKind.UNAUTHENTICATED,),
    ),
)


def openapi(context: ServerContext) -> dict[str, Any]:
    """The OpenAPI document."""
    declared = (*OPERATIONS, *STAGES, *KAFKA_REST, *REGISTRY, *REST_PROXY, *ADMIN, *CONSOLE, TAIL, *_HEALTH)
    made = document(
        context,
        [structs.replace(each, example=example_of(each.method, each.path)) for each in declared],
        version=__version__,
    )
    made["info"] |= {
        "description": "HTTP over durable topics: publish, read and consume (PIP-64), and administer.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    return made


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI document of the WebSocket endpoint."""
    return websocket.asyncapi(__version__)
