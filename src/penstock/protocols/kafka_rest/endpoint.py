"""The endpoint: which resource a path names, what may be done with it, and an error as an answer."""

import logging
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.long_poll import LongPolls, Receive
from penstock.protocols.media import choose_type
from penstock.protocols.session import ServerContext, Session

from .exchange import Answer, ClientGoneError, Exchange, RefusedError, Scope, Send, json_answer, refusal
from .logs import Logs
from .page import page
from .positions import TrimmedError
from .read import Read
from .write import Write

log = logging.getLogger(__name__)

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
        if scope["type"] != "http":
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is no WebSocket at {scope['path']}")
        exchange = Exchange(scope, receive, send)
        try:
            answer = await self._answer(exchange)
        except RefusedError as refused:
            answer = refused.answer
        except PenstockError as error:
            answer = refusal(error, self._challenge() if error.kind is ErrorKind.UNAUTHENTICATED else None)
        except TrimmedError:
            answer = refusal(PenstockError(ErrorKind.UNAVAILABLE, "the log is being trimmed"))
        except ClientGoneError:
            return
        except Exception:
            log.exception("request failed", extra={"method": exchange.method, "path": scope["path"]})
            answer = refusal(
                PenstockError(ErrorKind.INTERNAL, "an error inside the server; its log says more")
            )
        await exchange.answer(answer)

    async def _answer(self, exchange: Exchange) -> Answer:
        session = await self._context.admit(exchange.authorization, exchange.scope)
        segments = _segments(exchange.scope)
        match segments:
            case []:
                _check_method(exchange, _READING)
                return self._welcome(session, exchange)
            case ["topics"]:
                _check_method(exchange, _READING)
                return json_answer([name.local for name in self._names(session)])
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

    def _challenge(self) -> dict[str, str]:
        values = [value.decode("latin-1") for _, value in self._context.challenges]
        return {"www-authenticate": ", ".join(values)}

    def _welcome(self, session: Session, exchange: Exchange) -> Answer:
        if choose_type(exchange.headers.get("accept"), ("application/json", "text/html")) == "text/html":
            host = f"{exchange.scope.get('scheme', 'http')}://{exchange.headers.get('host', 'localhost')}"
            return page({n.local: self._logs.partitions(n) for n in self._names(session)}, host)
        return json_answer(
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
        return json_answer(
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
        answer = await self._read(await self._logs.get(name, partition), exchange)
        session.may_consume(name)  # still, where it waited
        return answer

    def drain(self) -> None:
        """End every wait: the server takes no new work and finishes what is in flight."""
        self._waits.drain()

    async def close(self) -> None:
        """Let go of everything."""
        await self._waits.close()


def _segments(scope: Scope) -> list[str]:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())
    try:
        segments = [unquote_to_bytes(part).decode() for part in raw.split(b"/")[2:]]
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.INVALID_NAME, "the path is no UTF-8") from None
    return segments[:-1] if segments and not segments[-1] else segments


def _check_method(exchange: Exchange, allowed: tuple[str, ...]) -> None:
    if exchange.method not in allowed:
        raise RefusedError(
            ErrorKind.METHOD_NOT_ALLOWED,
            f"{exchange.method[:20]} is not for this resource",
            {"allow": ", ".join(allowed)},
        )


def _name(topic: str) -> TopicName:
    return TopicName.of("persistent", DEFAULT_NAMESPACE.tenant, DEFAULT_NAMESPACE.namespace, topic)


def _number(partition: str) -> int:
    if partition.isascii() and partition.isdigit() and len(partition) < 10:
        return int(partition)
    raise PenstockError(ErrorKind.PARTITION_NOT_FOUND, f"no partition {partition[:80]!r}")
