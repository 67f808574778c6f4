"""The REST endpoint: from a path to what serves it, and from an error to its answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.model.errors import PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange, Scope
from penstock.protocols.http.failure import fail
from penstock.protocols.http.operations import Operation
from penstock.protocols.http.paths import raw_path

from . import consume, cursor, logs, produce, read, records, request, shipped
from .operations import DOMAINS, PREFIX, SHIPPED, Paths, Target, below, declared_path
from .services import PassOn, Services

Handler = Callable[[Caller, Target, Exchange], Awaitable[None]]

TARGETS_MAX: Final = 4096  # paths whose meaning is remembered
TARGET_BYTES_MAX: Final = 1024  # of each: a client's may be as long as a head

OPERATIONS: Final[Sequence[Operation]] = [
    operation
    for module in (produce, shipped, request, read, logs, records, consume, cursor)
    for operation in module.operations
]
_PATHS: Final = Paths(OPERATIONS)
_PUBLISHING: Final = frozenset(
    below(operation) for module in (produce, shipped, request) for operation in module.operations
)


class RestEndpoint:
    """Serves everything below `/topics/`."""

    def __init__(self, context: ServerContext, pass_on: PassOn | None = None) -> None:
        """`pass_on`: see `Services`."""
        self._context = context
        self.services = Services(context, pass_on)
        self._learns = context.broker.cluster is not None
        self._handlers: dict[tuple[str, bool], dict[str, Handler]] = {}
        for operation in OPERATIONS:
            key = below(operation), operation.path.startswith(SHIPPED)
            methods = self._handlers.setdefault(key, {})
            methods[operation.method] = partial(operation.handler, self.services)
        self._targets: dict[bytes, tuple[Target, Mapping[str, Handler]]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        scope = exchange.scope
        shipped, operation = False, ""
        try:
            target, methods = self._find(scope)
            shipped, operation = target.shipped, target.operation
            handler = methods.get(scope["method"])
            if handler is None:
                raise not_allowed(exchange.method, list(methods))
            caller = await Caller.admit(self._context, exchange.authorization, scope)
            if self._learns and target.topic.tenant:
                await self._context.broker.topics.learn(target.topic)
            await handler(caller, target, exchange)
        except Exception as error:
            dialect = Dialect.PULSAR if shipped or _shipped(scope) else Dialect.REST
            await fail(exchange, error, self._context, dialect, declared_path(operation, shipped=shipped))

    def publishes(self, exchange: Exchange) -> bool:
        """Whether a request publishes messages, or one and waits for the reply to it."""
        try:
            target, _ = self._find(exchange.scope)
        except PenstockError:
            return False
        return exchange.method == "POST" and target.operation in _PUBLISHING

    def _find(self, scope: Scope) -> tuple[Target, Mapping[str, Handler]]:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        found = self._targets.get(path)
        if found is None:
            target = _PATHS.locate(raw_path(scope))
            found = target, self._handlers[target.operation, target.shipped]
            if len(path) <= TARGET_BYTES_MAX:
                if len(self._targets) >= TARGETS_MAX:
                    self._targets.clear()
                self._targets[path] = found
        return found

    def drain(self) -> None:
        """End every wait: the server takes no new work and finishes work in flight."""
        self.services.polls.drain()
        self.services.remote_instances.drain()

    async def close(self) -> None:
        """End every wait, and close every consumer instance."""
        await self.services.close()


def _shipped(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.removeprefix(PREFIX.decode()).partition("/")[0] in DOMAINS
