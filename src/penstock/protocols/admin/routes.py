"""The administrator's endpoint as an ASGI application."""

from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.session import ServerContext

from . import (
    brokers,
    compaction,
    lookup,
    messages,
    namespace_actions,
    namespace_policies,
    namespaces,
    permissions,
    proxy_stats,
    schemas,
    server,
    single,
    subscriptions,
    topic_actions,
    topic_policies,
    topics,
)
from .answers import error_body, send_json
from .call import Call
from .refusals import REFUSALS
from .table import AdminOperation, Paths, named

ENDPOINTS: list[AdminOperation] = [
    *server.table.endpoints,
    *brokers.table.endpoints,
    *proxy_stats.table.endpoints,
    *namespaces.table.endpoints,
    *namespace_policies.table.endpoints,
    *namespace_actions.table.endpoints,
    *schemas.table.endpoints,
    *topics.table.endpoints,
    *topic_actions.table.endpoints,
    *topic_policies.table.endpoints,
    *compaction.table.endpoints,
    *subscriptions.table.endpoints,
    *messages.table.endpoints,
    *single.table.endpoints,
    *permissions.table.endpoints,
    *lookup.table.endpoints,
]

_PATHS = Paths(ENDPOINTS, REFUSALS)


def endpoint(context: ServerContext) -> ASGIApp:
    """Serves `/admin/v2` and `/lookup/v2`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is no WebSocket at {scope['path']}")
        try:
            status, body, headers = await _answer(context, scope, receive)
        except PenstockError as error:
            status, body = error.kind.codes.status, error_body(error.kind, error.message)
            headers = _refusal_headers(context, error)
        if scope["method"] == "HEAD" and body is not None:
            headers = {"content-type": "application/json", **headers, "content-length": str(len(body))}
            body = None
        await send_json(send, status, body, headers)

    return serve


async def _answer(
    context: ServerContext, scope: Scope, receive: Receive
) -> tuple[int, bytes | None, dict[str, str]]:
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    raw = scope.get("raw_path") or scope["path"].encode()
    path = raw.decode("ascii", "replace").partition("?")[0]
    found = _PATHS.find(method, path)
    if found.endpoint is None:
        if not found.methods and not found.reason:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path']}")
        allowed = sorted({*found.methods, *(["HEAD"] if "GET" in found.methods else [])})
        kind = ErrorKind.METHOD_NOT_ALLOWED
        body = error_body(kind, found.reason or f"{scope['method']} is not for {scope['path']}")
        return kind.codes.status, body, {"allow": ", ".join(allowed)}
    session = await context.admit(_authorization(scope), scope)
    try:
        names = named(found.endpoint, found.segments)
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the URL is not UTF-8") from None
    content = (
        b"" if found.endpoint.body is None else await _content(receive, context.limits.max_request_bytes)
    )
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    answer = await found.endpoint.handler(Call(session, names, query, content, host))
    if method != "GET":
        context.audit.changed(session.role, scope, answer.status, proxy=session.proxy)
    return (answer.status, *answer.content())


def _authorization(scope: Scope) -> bytes | None:
    found: bytes | None = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    return found


def _refusal_headers(context: ServerContext, error: PenstockError) -> dict[str, str]:
    kind = error.kind
    if kind is ErrorKind.UNAUTHENTICATED:
        return {"www-authenticate": ", ".join(value.decode("latin-1") for _, value in context.challenges)}
    if kind.codes.retriable and kind.codes.status in (429, 503):
        return {"retry-after": str(error.retry_after_s)}
    return {}


async def _content(receive: Receive, bytes_max: int) -> bytes:
    """The body, held to a bound before it is read whole."""
    content = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise PenstockError(ErrorKind.BAD_PARAMETER, "the request was cut short")
        content += message.get("body", b"")
        if len(content) > bytes_max:
            raise PenstockError(ErrorKind.TOO_LARGE, f"a body of more than {bytes_max} bytes")
        if not message.get("more_body"):
            return bytes(content)
