"""The admin API: which operation a request means, and its answer."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.operations import Router
from penstock.protocols.http.paths import raw_path

from . import (
    cluster,
    fixed,
    internal,
    load,
    messages,
    namespace_actions,
    namespaces,
    permissions,
    policies,
    schemas,
    stats,
    subscriptions,
    topic_actions,
    topics,
)
from .call import Call
from .operations import PARTICULAR, AdminOperation, Refusal
from .refusals import REFUSALS

_MODULES: Final = (
    cluster,
    load,
    fixed,
    namespaces,
    namespace_actions,
    policies,
    permissions,
    topics,
    topic_actions,
    subscriptions,
    messages,
    stats,
    internal,
    schemas,
)

OPERATIONS: Final = tuple(operation for module in _MODULES for operation in module.table)


class Found(NamedTuple):
    """An operation with the names in its path, still encoded. Or None with the methods that there are, and why
    this one is refused, if known; neither for an unknown path."""

    operation: AdminOperation | None
    names: dict[str, str]
    methods: list[str]
    reason: str


class Paths:
    """All operations and refusals, by path and method."""

    def __init__(self, operations: Iterable[AdminOperation], refusals: Iterable[Refusal] = ()) -> None:
        self._by_path: dict[str, dict[str, AdminOperation]] = {}
        self._refused: dict[str, dict[str, str]] = {}  # why, by path and method
        self._below: dict[str, str] = {}  # why all that is below these paths is refused
        for operation in operations:
            by_method = self._by_path.setdefault(operation.path, {})
            assert operation.method not in by_method, f"declared twice: {operation.method} {operation.path}"
            by_method[operation.method] = operation
        for refusal in refusals:
            for path in refusal.paths:
                if path.endswith("/**"):
                    self._below[path[:-2]] = refusal.reason
                else:
                    self._refused.setdefault(path, {}).update(dict.fromkeys(refusal.methods, refusal.reason))
        self._router = Router({**self._by_path, **self._refused}, PARTICULAR)

    def find(self, method: str, raw_path: str) -> Found:
        """The operation for a path as it was sent: segments are taken apart first, so that a name may hold a slash."""
        whole, methods, reason = raw_path.strip("/"), list[str](), ""
        for path, names in self._router.all(whole.split("/")):
            if "" in names.values():
                continue
            by_method = self._by_path.get(path, {})
            if method in by_method:
                return Found(by_method[method], names, [], "")
            methods += by_method
            reason = reason or self._refused.get(path, {}).get(method, "")
        below = (why for path, why in self._below.items() if f"/{whole}/".startswith(path))
        return Found(None, {}, methods, reason or next(below, ""))


_PATHS: Final = Paths(OPERATIONS, REFUSALS)


def endpoint(context: ServerContext) -> Callable[[Exchange], Awaitable[None]]:
    """Serves `/admin/v2`, `/admin/v3` and `/lookup/v2`."""

    async def serve(exchange: Exchange) -> None:
        method = "GET" if exchange.method == "HEAD" else exchange.method
        found = _PATHS.find(method, raw_path(exchange.scope).decode("ascii", "replace"))
        try:
            await exchange.give(await _answer(context, exchange, found))
        except Exception as error:
            operation = "" if found.operation is None else found.operation.path
            await fail(exchange, error, context, Dialect.PULSAR, operation)

    return serve


async def _answer(context: ServerContext, exchange: Exchange, found: Found) -> Answer:
    scope = exchange.scope
    operation, encoded, methods, reason = found
    if operation is None:
        if not methods and not reason:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path']}")
        allowed = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
        raise not_allowed(exchange.method, allowed, reason or f"{exchange.method} is not for {scope['path']}")
    caller = await Caller.admit(context, exchange.authorization, scope)
    try:
        names = {name: unquote(given, errors="strict") for name, given in encoded.items()}
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the URL is not UTF-8") from None
    if context.broker.cluster is not None:
        await _learn(context.broker, names)
    content = b""
    if operation.request is not None:
        content = await exchange.body(context.limits.max_request_bytes)
    call = Call(caller, names, query, content, exchange.header(b"host") or "", exchange.address)
    answer = _as_answer(operation, await operation.handler(call))
    # A worker has topics created that its callers use: no administrator changed anything.
    if exchange.method not in ("GET", "HEAD") and not caller.is_worker:
        context.audit.changed(caller.role, scope, answer.status, proxy=caller.proxy)
    return answer


async def _learn(broker: Broker, names: Mapping[str, str]) -> None:
    """Have what the handlers ask at once of a namespace or a topic learned from the cluster. Raises INVALID_NAME."""
    if "tenant" not in names or "namespace" not in names:
        return
    if "topic" in names:
        domain = names.get("domain", "persistent")
        topic = TopicName.of(domain, names["tenant"], names["namespace"], names["topic"])
        await broker.topics.learn(topic, whole=True)
    else:
        await broker.topics.learn_names(NamespaceName.of(names["tenant"], names["namespace"]))


def _as_answer(operation: AdminOperation, value: Any) -> Answer:
    if isinstance(value, Answer):
        return value
    if isinstance(value, bytes):
        return Answer(raw=value)
    if value is None and operation.status != 204:  # `null`: a policy that is not decided
        return Answer(raw=b"null", headers={"content-type": "application/json"})
    return Answer(status=operation.status, body=value)
