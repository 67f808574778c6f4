"""The upgrade: who, on what, with which parameters; then the endpoint's talk (reference/pulsar 1.7)."""

import logging
from typing import Final

from penstock.core.consumer import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.protocols.payloads import Schemes
from penstock.protocols.session import Gate, Session

from .consumer import ConsumerTalk
from .parameters import ConsumerParameters, consumer_parameters, producer_parameters, reader_parameters
from .path import Role, Target, parse_path
from .producer import ProducerTalk
from .query import Query
from .reader import ReaderTalk
from .socket import Receive, Scope, Send, Socket, Sockets

log = logging.getLogger(__name__)

_BEARER: Final = "Bearer "

Talk = ProducerTalk | ConsumerTalk | ReaderTalk


class Door:
    """The ASGI application of every WebSocket endpoint."""

    def __init__(self, gate: Gate, sockets: Sockets) -> None:
        self._gate = gate
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket."""
        event = await receive()
        if event["type"] != "websocket.connect":
            return
        limits, clock = self._gate.limits, self._gate.broker.clock
        socket = Socket(receive, send, clock, limits.websocket_idle_ms)
        self._sockets.add(socket)
        try:
            talk = await self._open(scope, socket)
            if talk is not None:
                await talk.run()
        finally:
            self._sockets.discard(socket)

    async def _open(self, scope: Scope, socket: Socket) -> Talk | None:
        """Everything that can be refused is done before the upgrade is answered."""
        role: Role = "producer"
        try:
            target = parse_path(_raw_path(scope))
            role = target.role
            return await self._create(target, scope, socket)
        except PenstockError as error:
            await socket.refuse(*refusal(role, error))
        except Exception:
            log.exception("opening a WebSocket failed")
            await socket.refuse(500, f"Failed to create {role}: internal error")
        return None

    async def _create(self, target: Target, scope: Scope, socket: Socket) -> Talk:
        query = Query(scope["query_string"])
        match target.role, target.topic:
            case "producer", TopicName() as topic:
                return await self._producer(topic, query, scope, socket)
            case "reader", TopicName() as topic:
                return await self._reader(topic, query, scope, socket)
        return await self._consumer(target, query, scope, socket)

    def _admit(self, query: Query, scope: Scope) -> Session:
        return self._gate.session(_token(scope) or query.text("token"))

    async def _producer(self, topic: TopicName, query: Query, scope: Scope, socket: Socket) -> Talk:
        self._admit(query, scope).may_produce(topic)
        parameters = producer_parameters(query)
        broker = self._gate.broker
        producer = await broker.producer(topic, parameters.options)
        await socket.accept()
        schemes = Schemes(broker.schemas, topic)
        return ProducerTalk(socket, producer, schemes, parameters, broker, self._gate.limits)

    async def _reader(self, topic: TopicName, query: Query, scope: Scope, socket: Socket) -> Talk:
        self._admit(query, scope).may_consume(topic)
        parameters = reader_parameters(query)
        broker = self._gate.broker
        options = ConsumerOptions(
            name=parameters.name,
            type=SubscriptionType.EXCLUSIVE,
            durable=False,
            start=parameters.start,
            window=None,
            flow=True,
            auto_ack=True,
            outbox_bytes_max=self._gate.limits.websocket_outbox_bytes,
        )
        consumer = await broker.subscribe([topic], broker.new_name("reader"), options)
        consumer.flow(parameters.window)
        await socket.accept()
        return ReaderTalk(socket, consumer, broker)

    async def _consumer(self, target: Target, query: Query, scope: Scope, socket: Socket) -> Talk:
        multi = target.topic is None
        parameters = consumer_parameters(
            query, multi=multi, outbox_bytes_max=self._gate.limits.websocket_outbox_bytes
        )
        session = self._admit(query, scope)
        names = parameters.topics if target.topic is None else (target.topic,)
        for name in names:
            session.may_consume(name, target.subscription)
        consumer = await self._subscribe(names, target.subscription, parameters)
        await socket.accept()
        return ConsumerTalk(socket, consumer, self._gate.broker, multi=multi)

    async def _subscribe(
        self, names: tuple[TopicName, ...], subscription: str, parameters: ConsumerParameters
    ) -> Consumer:
        broker, pattern = self._gate.broker, parameters.pattern
        if pattern is None:
            return await broker.subscribe(names, subscription, parameters.options)
        return await broker.subscribe_pattern(
            pattern.pattern,
            subscription,
            parameters.options,
            namespace=pattern.namespace,
            domain=pattern.domain,
        )


def refusal(role: Role, error: PenstockError) -> tuple[int, str]:
    """The status and the text of a refused upgrade."""
    status = error.kind.face.ws_status
    if status == 401:
        return status, "Failed to authenticate"
    if status == 403:
        return status, "Not authorized"
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


def _token(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            return text.removeprefix(_BEARER) if text.startswith(_BEARER) else None
    return None
