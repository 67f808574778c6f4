"""The upgrade: caller, target and parameters; then the handler of the socket (Pulsar's WebSocket API)."""

import logging
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import Final

import msgspec

from penstock.broker.consumer import Consumer
from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.protocols.caller import Caller
from penstock.protocols.clients import client_of
from penstock.protocols.context import ServerContext
from penstock.protocols.holding import holding_of
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.exchange import Exchange, Receive, Scope, Send
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.proxied import Meter
from penstock.protocols.rates import SCOPE_KEY
from penstock.protocols.trace import trace_of

from .consumer import ConsumerHandler, ReaderHandler
from .delivery import budget_of
from .parameters import (
    TopicsPattern,
    consumer_parameters,
    producer_parameters,
    reader_parameters,
)
from .producer import ProducerHandler
from .socket import CONNECTION_KEY, Connection, Socket, Sockets
from .upgrade import Query, Role, Target, parse_path

log = logging.getLogger(__name__)

_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")

Handler = ProducerHandler | ConsumerHandler | ReaderHandler


async def upgrade_required(exchange: Exchange) -> None:
    """Answer HTTP without an upgrade below `/ws/` with 426. Raises NOT_FOUND, METHOD_NOT_ALLOWED."""
    path = exchange.scope["path"]
    if path == "/ws":
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path}")
    if exchange.method not in ("GET", "HEAD"):
        raise RefusedError(
            ErrorKind.METHOD_NOT_ALLOWED, f"{exchange.method} is not for {path}", {"allow": "GET, HEAD"}
        )
    headers = [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    await exchange.whole(426, [*headers, _TEXT], b"this is a WebSocket endpoint")


class WebSocketEndpoint:
    """The ASGI application of every WebSocket below `/ws/`. A server that drains awaits `sockets.drain()`."""

    def __init__(self, context: ServerContext, sockets: Sockets) -> None:
        self._context = context
        self._sockets = sockets

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        """Serve one socket, by the connection that the scope carries."""
        limits, clock = self._context.limits, self._context.broker.clock
        connection: Connection = scope["state"][CONNECTION_KEY]
        socket = Socket(connection, clock, limits.websocket_idle_ms)
        del connection
        socket.holding = holding_of(scope)
        self._sockets.add(socket)
        try:
            handler = await self._open(scope, socket)
            if handler is not None:
                socket.allowance = scope.get(SCOPE_KEY)
                await handler.run()
        finally:
            if socket.held is not None:
                socket.held.close()
            if socket.proxied is not None:
                self._context.proxied.leave(socket.proxied)
            self._sockets.discard(socket)
            socket.finish()

    async def _open(self, scope: Scope, socket: Socket) -> Handler | None:
        """Everything that can be refused is done before the upgrade is answered."""
        role: Role = "producer"
        try:
            target = parse_path(_raw_path(scope))
            role = target.role
            return await self._create(target, scope, socket)
        except PenstockError as error:
            more = self._context.challenges if error.kind is ErrorKind.UNAUTHENTICATED else []
            if error.kind is ErrorKind.TOO_MANY_REQUESTS:
                more = [(b"retry-after", b"%d" % error.retry_after_s)]
            socket.refuse(*refusal(role, error), *more)
        except Exception:
            log.exception("opening a WebSocket failed")
            socket.refuse(500, f"Failed to create {role}: internal error")
        return None

    async def _create(self, target: Target, scope: Scope, socket: Socket) -> Handler:
        query = Query(scope["query_string"])
        match target.role, target.topic:
            case "producer", TopicName() as topic:
                return await self._producer(topic, query, scope, socket)
            case "reader", TopicName() as topic:
                return await self._reader(topic, query, scope, socket)
        return await self._consumer(target, query, scope, socket)

    async def _admit(self, scope: Scope, *topics: TopicName) -> Caller:
        caller = await Caller.admit(self._context, _authorization(scope), scope)
        for topic in topics:
            await self._context.broker.topics.learn(topic)
        return caller

    async def _producer(self, topic: TopicName, query: Query, scope: Scope, socket: Socket) -> Handler:
        caller = await self._admit(scope, topic)
        socket.held = caller.watch(partial(caller.may_produce, topic), socket.revoke)
        parameters = producer_parameters(query)
        broker = self._context.broker
        options = msgspec.structs.replace(parameters.options, client=client_of(scope))
        producer = await broker.producer(topic, options)
        caller.set_owner(producer)
        socket.accept()
        topic_schemas = TopicSchemas(broker.schemas, topic)
        meter = self._enter(scope, socket, "producer", (topic,), producer)
        return ProducerHandler(
            socket,
            producer,
            topic_schemas,
            parameters,
            broker,
            self._context.limits,
            meter,
            trace_of(scope["headers"]),
        )

    async def _reader(self, topic: TopicName, query: Query, scope: Scope, socket: Socket) -> Handler:
        caller = await self._admit(scope, topic)
        socket.held = caller.watch(partial(caller.may_consume, topic), socket.revoke)
        parameters = reader_parameters(query)
        broker = self._context.broker
        options = ConsumerOptions(
            name=parameters.name,
            type=SubscriptionType.EXCLUSIVE,
            durable=False,
            start=parameters.start,
            window=None,
            flow=True,
            auto_ack=True,
            outbox_bytes_max=self._context.limits.websocket_outbox_bytes,
            client=client_of(scope),
        )
        consumer = await broker.subscribe(
            [topic], f"reader-{token_hex(8)}", options, budget=budget_of(socket)
        )
        caller.set_owner(consumer)
        consumer.flow(parameters.window)
        socket.accept()
        return ReaderHandler(socket, consumer, self._enter(scope, socket, "reader", (topic,), consumer))

    async def _consumer(self, target: Target, query: Query, scope: Scope, socket: Socket) -> Handler:
        multi, broker = target.topic is None, self._context.broker
        parameters = consumer_parameters(
            query, multi=multi, outbox_bytes_max=self._context.limits.websocket_outbox_bytes
        )
        options = msgspec.structs.replace(parameters.options, client=client_of(scope))
        names = parameters.topics if target.topic is None else (target.topic,)
        caller = await self._admit(scope, *names)

        def check(*topics: TopicName) -> None:
            """Raise FORBIDDEN unless topics may be consumed, and their dead letters published."""
            for name in topics:
                caller.may_consume(name, target.subscription)
                caller.may_dead_letter(name, target.subscription, options.dead_letter)

        if parameters.pattern is None:
            socket.held = caller.watch(partial(check, *names), socket.revoke)
            consumer = await broker.subscribe(names, target.subscription, options, budget=budget_of(socket))
        else:
            consumer = await self._subscribe_pattern(
                parameters.pattern, target.subscription, options, caller, socket, check
            )
        caller.set_owner(consumer)
        socket.accept()
        followed = names or tuple(sorted({source.topic.name.base for source in consumer.attached}))
        meter = self._enter(scope, socket, "consumer", followed, consumer)
        return ConsumerHandler(socket, consumer, broker, meter, multi=multi)

    async def _subscribe_pattern(
        self,
        pattern: TopicsPattern,
        subscription: str,
        options: ConsumerOptions,
        caller: Caller,
        socket: Socket,
        check: Callable[..., None],
    ) -> Consumer:
        """What matches and may be consumed, now and later; the socket ends when one of them may be no longer."""
        await self._context.broker.topics.learn_names(pattern.namespace)
        caller.may_list(pattern.namespace)
        broker = self._context.broker

        def allowed(name: TopicName) -> bool:
            try:
                check(name)
            except PenstockError:
                return False
            return True

        consumer = await broker.subscribe_pattern(
            pattern.pattern,
            subscription,
            options,
            namespace=pattern.namespace,
            domain=pattern.domain,
            allowed=allowed,
            budget=budget_of(socket),
        )
        try:
            socket.held = caller.watch(
                lambda: check(*[source.topic.name for source in consumer.attached]), socket.revoke
            )
        except PenstockError:
            await consumer.leave()
            raise
        return consumer

    def _enter(
        self,
        scope: Scope,
        socket: Socket,
        role: str,
        topics: tuple[TopicName, ...],
        who: Producer | Consumer,
    ) -> Meter:
        """Count a socket among those of the proxy's statistics."""
        host, port = scope.get("client") or ("", 0)
        socket.proxied = self._context.proxied.enter(f"{host}:{port}", role, topics, who)
        return socket.proxied.meter


def refusal(role: Role, error: PenstockError) -> tuple[int, str]:
    """The status and the text of a refused upgrade."""
    status = error.kind.codes.ws_status
    if status == 401:
        return status, f"Failed to authenticate: {error.message}"
    if status == 403:
        return status, f"Not authorized: {error.message}"
    if error.kind is ErrorKind.NOT_FOUND:
        return status, error.message
    if role == "reader" and error.kind is not ErrorKind.UNAVAILABLE:
        return 500, f"Failed to create reader: {error.message}"
    if status == 400:
        return status, f"Invalid query params: {error.message}"
    return status, f"Failed to create {role}: {error.message}"


def _raw_path(scope: Scope) -> bytes:
    """The path as it was sent, without what the server is mounted under."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    root = scope.get("root_path", "").encode()
    return raw.removeprefix(root)


def _authorization(scope: Scope) -> bytes | None:
    found: bytes | None = next((value for name, value in scope["headers"] if name == b"authorization"), None)
    return found
