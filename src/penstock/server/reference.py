"""The interface, for programs: OpenAPI of all HTTP endpoints, AsyncAPI of the WebSocket one; and for people: a
welcome, and the HTTP interface as one page. No page loads anything from elsewhere."""

from html import escape
from typing import Any, Final

from penstock import __version__
from penstock.model.errors import ErrorKind
from penstock.protocols.admin.routes import OPERATIONS as ADMIN
from penstock.protocols.context import ServerContext
from penstock.protocols.http.openapi import document
from penstock.protocols.http.operations import Operation
from penstock.protocols.kafka_rest.endpoint import OPERATIONS as KAFKA_REST
from penstock.protocols.rest.endpoint import OPERATIONS
from penstock.protocols.rest.stages import OPERATIONS as STAGES
from penstock.protocols.websocket import asyncapi as websocket

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font:14px/1.4 ui-monospace,monospace}
pre{padding:.6rem .8rem;overflow:auto;background:color-mix(in srgb,currentColor 8%,transparent);border-radius:6px}
h2{margin-top:2.5rem;border-bottom:1px solid color-mix(in srgb,currentColor 25%,transparent)}
details{margin:.3rem 0}summary{cursor:pointer}
.m{display:inline-block;min-width:4.5rem;font-weight:600}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}
"""

_TRY = """curl -X POST 'http://HOST/topics/public/default/hello' \\
     -H 'Content-Type: application/json' \\
     -d '{"schema_type": "string", "messages": [{"value": "hello, world"}]}'

curl 'http://HOST/topics/public/default/hello/partitions/0/messages'"""


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
        answer=dict[str, str | int],
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
    made = document(context, [*OPERATIONS, *STAGES, *KAFKA_REST, *ADMIN, *_HEALTH], version=__version__)
    made["info"] |= {
        "description": "HTTP over durable topics: publish, read and consume (PIP-64), and administer.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    return made


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI document of the WebSocket endpoint."""
    return websocket.asyncapi(__version__)


def welcome(version: str) -> str:
    """The first page."""
    links = "".join(
        f'<li><a href="{path}">{path}</a>: {what}</li>'
        for path, what in (
            ("/docs", "the HTTP interface, as a page"),
            ("/openapi.json", "the same for programs"),
            ("/asyncapi.json", "the WebSocket interface for programs"),
            ("/admin/v2/persistent/public/default", "the topics of public/default"),
            ("/health/ready", "whether the server takes work"),
        )
    )
    body = f"<h1>Penstock {escape(version)}</h1><p>It runs. Try:</p><pre>{escape(_TRY)}</pre><ul>{links}</ul>"
    return _page("Penstock", body)


def render(document: dict[str, Any]) -> str:
    """An OpenAPI document as a page."""
    by_tag: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and "responses" in operation:
                tag = (operation.get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append(_operation(method, path, operation))
    info = document["info"]
    body = f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
    body += '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
    for tag, operations in by_tag.items():
        body += f"<h2>{escape(tag)}</h2>{''.join(operations)}"
    shapes = document.get("components", {}).get("schemas", {})
    if shapes:
        body += "<h2>Shapes</h2>" + "".join(_shape(name, shape) for name, shape in sorted(shapes.items()))
    return _page(f"{info['title']}: the HTTP interface", body)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    summary = escape(operation.get("summary", ""))
    inside = f"<p>{escape(operation.get('description', ''))}</p>" if operation.get("description") else ""
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(_parameter(parameter) for parameter in parameters if "name" in parameter)
        inside += f"<table>{rows}</table>"
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        inside += f"<p>Body, <code>{escape(kind)}</code>: {_type(content.get('schema', {}))}</p>"
    for status, response in operation["responses"].items():
        shapes = "; ".join(
            f"<code>{escape(kind)}</code> {_type(content.get('schema', {}))}"
            for kind, content in response.get("content", {}).items()
        )
        inside += f"<div><code>{escape(str(status))}</code> {escape(response.get('description', ''))} {shapes}</div>"
    return (
        f'<details><summary><span class="m">{method.upper()}</span><code>{escape(path)}</code> '
        f"{summary}</summary>{inside}</details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    what = escape(parameter.get("description", ""))
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code></td><td>{escape(parameter['in'])}</td>"
        f"<td>{_type(parameter.get('schema', {}))}</td><td>{what}</td></tr>"
    )


def _shape(name: str, shape: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(part)}</td>"
        f"<td>{escape(part.get('description', ''))}</td></tr>"
        for field, part in shape.get("properties", {}).items()
    )
    what = escape(shape.get("description", ""))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> {what}</summary>'
        f"<table>{rows}</table></details>"
    )


def _type(schema: Any) -> str:
    """A schema in a few words."""
    if not isinstance(schema, dict):
        return "anything"
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        return f"list of {_type(schema.get('items'))}"
    return escape(kind if isinstance(kind, str) else " or ".join(kind))


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
