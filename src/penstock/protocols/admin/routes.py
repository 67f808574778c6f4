"""The administrator's endpoint as an ASGI application."""

from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange, raw_path

from . import (
    brokers,
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
        exchange = Exchange(scope, receive, send)
        try:
            await exchange.give(await _answer(context, exchange))
        except Exception as error:
            await exchange.fail(error, context, Dialect.PULSAR)

    return serve


async def _answer(context: ServerContext, exchange: Exchange) -> Answer:
    scope = exchange.scope
    method = "GET" if exchange.method == "HEAD" else exchange.method
    found = _PATHS.find(method, raw_path(scope).decode("ascii", "replace"))
    if found.endpoint is None:
        if not found.methods and not found.reason:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path']}")
        allowed = sorted({*found.methods, *(["HEAD"] if "GET" in found.methods else [])})
        raise not_allowed(
            exchange.method, allowed, found.reason or f"{exchange.method} is not for {scope['path']}"
        )
    caller = await Caller.admit(context, exchange.authorization, scope)
    try:
        names = named(found.endpoint, found.segments)
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the URL is not UTF-8") from None
    content = b""
    if found.endpoint.request is not None:
        content = await exchange.body(context.limits.max_request_bytes, encoded=True)
    call = Call(caller, names, query, content, exchange.header(b"host") or "")
    answer: Answer = await found.endpoint.handler(call)
    if method != "GET":
        context.audit.changed(caller.role, scope, answer.status, proxy=caller.proxy)
    return answer
