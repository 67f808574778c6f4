"""The endpoint: which resource a path names, what may be done with it, and an error as an answer."""

from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.long_poll import LongPolls
from penstock.protocols.http.media import choose_type
from penstock.protocols.http.operations import Router, Table
from penstock.protocols.http.params import Parameter
from penstock.protocols.http.paths import segments as segments_of
from penstock.runtime.tasks import chosen

from .bodies import TAKEN
from .logs import Logs
from .positions import TrimmedError
from .read import Read
from .representations import OFFERED
from .write import Write

TOPICS_SHOWN: Final = 1000  # the rest is in /kafka/topics

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Topics as byte ranges</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ background: #8881; padding: .7rem 1rem; overflow-x: auto; border-radius: .3rem }}
li a {{ margin-left: .4rem }}
</style>
</head>
<body>
<h1>Topics as byte ranges</h1>
<p>Every partition of a topic is one resource, and its messages are a stream of bytes that only grows.
Read any range of it; write by posting to it.</p>
<pre>curl -H 'Content-Type: text/plain' -d 'this is message 1' {host}/kafka/topics/foo/0
curl -H 'Accept: text/plain' -r 0-1023 {host}/kafka/topics/foo/0
curl -H 'Accept: text/plain' -H 'Prefer: wait=10' -r 28- {host}/kafka/topics/foo/0</pre>
<p><code>Content-Range</code> says which bytes of the log an answer consumed: go on at the next.
Representations: <code>application/x-kafka</code>, <code>text/plain</code>, <code>text/json</code>,
<code>application/json</code>, <code>application/x-ndjson</code>. See also <a href="/docs">the reference</a>.</p>
<h2>Topics</h2>
{topics}
</body>
</html>
"""


def page(partitions: Mapping[str, int], host: str) -> Answer:
    """The page, with the topics and how many partitions each has."""
    rows = []
    for name, count in list(partitions.items())[:TOPICS_SHOWN]:
        path = f"/kafka/topics/{quote(name, safe='')}"
        links = "".join(f'<a href="{path}/{n}">{n}</a>' for n in range(count))
        rows.append(f'<li><a href="{path}">{escape(name)}</a>: partition{"s" * (count > 1)}{links}</li>')
    topics = f"<ul>\n{chr(10).join(rows)}\n</ul>" if rows else "<p>There are none yet.</p>"
    headers = {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'",
        "vary": "Accept",
        "x-content-type-options": "nosniff",
    }
    return Answer(
        raw=_PAGE.format(host=escape(host), topics=topics).encode(errors="replace"), headers=headers
    )


Names = Mapping[str, str]
Handler = Callable[[Caller, Names, Exchange], Awaitable[Answer]]

PREFIX: Final = "/kafka"

_PARTITION: Final = "/kafka/topics/{topic}/{partition}"


class Welcome(msgspec.Struct):
    """The links of `/kafka`."""

    topics: str
    topic: str
    partition: str
    docs: str


class PartitionLink(msgspec.Struct):
    """One partition and its link."""

    partition: int
    href: str


class TopicAnswer(msgspec.Struct):
    """A topic of public/default."""

    topic: str
    partitions: list[PartitionLink]


def _header(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"}, "header")


_ALWAYS: Final = (
    ErrorKind.UNAUTHENTICATED,
    ErrorKind.FORBIDDEN,
    ErrorKind.UNAVAILABLE,
    ErrorKind.NEWER_FORMAT,
)
_NAMED: Final = (*_ALWAYS, ErrorKind.INVALID_NAME, ErrorKind.TOPIC_NOT_FOUND)

_READING: Final[dict[str, Any]] = {
    "description": "A range means the whole messages that begin in it, and at least one. `Content-Range` says"
    " which bytes of the log the answer consumed; positions never change.",
    "parameters": (
        _header(
            "Range", "bytes=first-last, bytes=first-, bytes=-last, or several; default from the earliest."
        ),
        _header("Accept-Charset", "For text: the charsets wanted."),
        _header("Accept-Encoding", "gzip is spoken."),
        _header("If-None-Match", "Answers 304 where nothing else would be sent."),
        _header("Prefer", "wait=10 waits so many seconds for the first byte of the range."),
    ),
    "answers": OFFERED,
    "further": ((206, "The messages of a range."), (304, "As it was.")),
    "errors": (
        *_NAMED,
        ErrorKind.PARTITION_NOT_FOUND,
        ErrorKind.NOT_ACCEPTABLE,
        ErrorKind.RANGE_NOT_SATISFIABLE,
        ErrorKind.NOT_SUPPORTED,
    ),
}


class KafkaRestEndpoint:
    """Serves `/kafka` and everything below it."""

    operations: Final = Table("kafka rest")

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._waits = LongPolls(context.broker.clock)
        self._logs = Logs(context.broker)
        self._read = Read(context.broker, context.limits, self._waits)
        self._write = Write(context.broker, context.limits, self._logs)
        self._handlers: dict[str, dict[str, Handler]] = {}
        for operation in self.operations:
            handlers = self._handlers.setdefault(operation.path, {})
            handlers[operation.method] = operation.handler.__get__(self)
            if operation.method == "GET":
                handlers["HEAD"] = handlers["GET"]
        self._router = Router(self._handlers)

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await exchange.give(await self._answer(exchange))
        except Exception as error:
            await fail(exchange, error, self._context, Dialect.REST)

    async def _answer(self, exchange: Exchange) -> Answer:
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        segments = segments_of(exchange.scope)
        if len(segments) > 1 and not segments[-1]:
            segments.pop()
        found = self._router.find(segments)
        if found is None:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {exchange.scope['path'][:200]}")
        path, names = found
        handler = self._handlers[path].get(exchange.method)
        if handler is None:
            raise not_allowed(exchange.method, list(self._handlers[path]))
        if "topic" in names:
            await self._context.broker.topics.learn(_name(names["topic"]))
        else:
            await self._context.broker.topics.learn_names(DEFAULT_NAMESPACE)
        return await handler(caller, names, exchange)

    async def _names(self, caller: Caller) -> list[TopicName]:
        """The topics that the caller may do anything with."""
        return await chosen(self._logs.names(), caller.sees)

    @operations.on(
        "GET",
        "/kafka",
        summary="Welcome: a page for people, JSON for programs.",
        answer=Welcome,
        answers=("text/html",),
        errors=_ALWAYS,
    )
    async def welcome(self, caller: Caller, names: Names, exchange: Exchange) -> Answer:
        if choose_type(exchange.headers.get("accept"), ("application/json", "text/html")) == "text/html":
            url = exchange.address or "http://localhost"
            there = await chosen(await self._names(caller), self._context.broker.topics.exists)
            return page({name.local: self._logs.partitions(name) for name in there}, url)
        return _json(
            {
                "topics": f"{PREFIX}/topics",
                "topic": f"{PREFIX}/topics/{{topic}}",
                "partition": f"{PREFIX}/topics/{{topic}}/{{partition}}",
                "docs": "/docs",
            }
        )

    @operations.on(
        "GET", "/kafka/topics", summary="The topics of public/default.", answer=list[str], errors=_ALWAYS
    )
    async def topics(self, caller: Caller, names: Names, exchange: Exchange) -> Answer:
        return _json([name.local for name in await self._names(caller)])

    @operations.on(
        "GET",
        "/kafka/topics/{topic}",
        summary="The partitions of a topic.",
        answer=TopicAnswer,
        errors=_NAMED,
    )
    async def topic(self, caller: Caller, names: Names, exchange: Exchange) -> Answer:
        name = _name(names["topic"])
        caller.may_look(name)
        path = f"{PREFIX}/topics/{quote(name.local, safe='')}"
        numbers = range(self._logs.partitions(name))
        return _json(
            {
                "topic": name.local,
                "partitions": [{"partition": n, "href": f"{path}/{n}"} for n in numbers],
            }
        )

    @operations.on("HEAD", _PARTITION, summary="What GET would answer, without its body.", **_READING)
    @operations.on("GET", _PARTITION, summary="Read a partition's bytes.", **_READING)
    async def read(self, caller: Caller, names: Names, exchange: Exchange) -> Answer:
        name, partition = _name(names["topic"]), _number(names["partition"])
        caller.may_consume(name)
        try:
            answer = await self._read(await self._logs.get(name, partition), exchange)
        except TrimmedError:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the log is being trimmed") from None
        caller.may_consume(name)  # again after a wait
        return answer

    @operations.on(
        "POST",
        _PARTITION,
        summary="Append messages: all of the body's, or none.",
        description="`Content-Range` of the answer says which bytes of the log they became.",
        parameters=(
            _header("Content-MD5", "The digest of the body as sent, in base64 or hex."),
            _header("Content-Encoding", "gzip and deflate are understood."),
            _header("X-Kafka-Key", "The key of every message of the body, or of one part."),
        ),
        bodies=TAKEN,
        status=204,
        errors=(
            *_NAMED,
            ErrorKind.PARTITION_NOT_FOUND,
            ErrorKind.BAD_PARAMETER,
            ErrorKind.CHECKSUM,
            ErrorKind.INCOMPATIBLE_SCHEMA,
            ErrorKind.PRODUCER_FENCED,
            ErrorKind.EXCLUSIVE_PRODUCER,
            ErrorKind.TOO_LARGE,
            ErrorKind.BAD_MEDIA_TYPE,
            ErrorKind.BAD_MESSAGE,
            ErrorKind.STORAGE_FULL,
            ErrorKind.STORAGE_FAILED,
            ErrorKind.TOPIC_TERMINATED,
        ),
    )
    async def write(self, caller: Caller, names: Names, exchange: Exchange) -> Answer:
        name, partition = _name(names["topic"]), _number(names["partition"])
        caller.may_produce(name)
        return await self._write(name, partition, exchange)

    def drain(self) -> None:
        """End every wait: the server takes no new work and finishes work in flight."""
        self._waits.drain()

    async def close(self) -> None:
        """End waits, and store known positions."""
        await self._waits.close()
        await self._logs.close()


def _json(value: Any) -> Answer:
    return Answer(body=value, headers={"vary": "Accept"})


def _name(topic: str) -> TopicName:
    return TopicName.of("persistent", DEFAULT_NAMESPACE.tenant, DEFAULT_NAMESPACE.namespace, topic)


def _number(partition: str) -> int:
    if partition.isascii() and partition.isdigit() and len(partition) < 10:
        return int(partition)
    raise PenstockError(ErrorKind.PARTITION_NOT_FOUND, f"no partition {partition[:80]!r}")


OPERATIONS: Final = tuple(KafkaRestEndpoint.operations)
