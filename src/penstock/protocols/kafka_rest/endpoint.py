"""The endpoint: which resource a path names, what may be done with it, and an error as an answer."""

from typing import Any, Final
from urllib.parse import quote

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.http.answers import Answer, Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange, Receive, Scope, Send
from penstock.protocols.http.long_poll import LongPolls
from penstock.protocols.media import choose_type
from penstock.protocols.session import ServerContext, Session

from .logs import Logs
from .page import page
from .positions import TrimmedError
from .read import Read
from .write import Write

PREFIX: Final = "/kafka"

_READING: Final = ("GET", "HEAD")


class KafkaRestEndpoint:
    """An ASGI application for `/kafka` and everything below it."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._waits = LongPolls(context.broker.clock)
        self._logs = Logs(context.broker)
        self._read = Read(context.broker, context.limits, self._waits)
        self._write = Write(context.broker, context.limits, self._logs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            await exchange.give(await self._answer(exchange))
        except Exception as error:
            await exchange.fail(error, self._context, Dialect.REST)

    async def _answer(self, exchange: Exchange) -> Answer:
        session = await self._context.admit(exchange.authorization, exchange.scope)
        segments = exchange.segments()[1:]
        if segments and not segments[-1]:
            segments.pop()
        match segments:
            case []:
                _check_method(exchange, _READING)
                return self._welcome(session, exchange)
            case ["topics"]:
                _check_method(exchange, _READING)
                return _json([name.local for name in self._names(session)])
            case ["topics", topic]:
                _check_method(exchange, _READING)
                return self._topic(session, _name(topic))
            case ["topics", topic, partition]:
                _check_method(exchange, (*_READING, "POST"))
                return await self._partition(session, _name(topic), _number(partition), exchange)
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {exchange.scope['path'][:200]}")

    def _names(self, session: Session) -> list[TopicName]:
        """The topics that the session may do anything with."""
        return [name for name in self._logs.names() if session.sees(name)]

    def _welcome(self, session: Session, exchange: Exchange) -> Answer:
        if choose_type(exchange.headers.get("accept"), ("application/json", "text/html")) == "text/html":
            host = f"{exchange.scope.get('scheme', 'http')}://{exchange.header(b'host') or 'localhost'}"
            return page({n.local: self._logs.partitions(n) for n in self._names(session)}, host)
        return _json(
            {
                "topics": f"{PREFIX}/topics",
                "topic": f"{PREFIX}/topics/{{topic}}",
                "partition": f"{PREFIX}/topics/{{topic}}/{{partition}}",
                "docs": "/docs",
            }
        )

    def _topic(self, session: Session, name: TopicName) -> Answer:
        session.may_look(name)
        path = f"{PREFIX}/topics/{quote(name.local, safe='')}"
        numbers = range(self._logs.partitions(name))
        return _json(
            {
                "topic": name.local,
                "partitions": [{"partition": n, "href": f"{path}/{n}"} for n in numbers],
            }
        )

    async def _partition(
        self, session: Session, name: TopicName, partition: int, exchange: Exchange
    ) -> Answer:
        if exchange.method == "POST":
            session.may_produce(name)
            return await self._write(name, partition, exchange)
        session.may_consume(name)
        try:
            answer = await self._read(await self._logs.get(name, partition), exchange)
        except TrimmedError:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the log is being trimmed") from None
        session.may_consume(name)  # still, where it waited
        return answer

    def drain(self) -> None:
        """End every wait: the server takes no new work and finishes what is in flight."""
        self._waits.drain()

    async def close(self) -> None:
        """Let go of everything."""
        await self._waits.close()


def _json(value: Any) -> Answer:
    return Answer(body=value, headers={"vary": "Accept"})


def _check_method(exchange: Exchange, allowed: tuple[str, ...]) -> None:
    if exchange.method not in allowed:
        raise not_allowed(exchange.method, allowed)


def _name(topic: str) -> TopicName:
    return TopicName.of("persistent", DEFAULT_NAMESPACE.tenant, DEFAULT_NAMESPACE.namespace, topic)


def _number(partition: str) -> int:
    if partition.isascii() and partition.isdigit() and len(partition) < 10:
        return int(partition)
    raise PenstockError(ErrorKind.PARTITION_NOT_FOUND, f"no partition {partition[:80]!r}")
