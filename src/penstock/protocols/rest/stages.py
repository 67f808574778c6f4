"""The door of staged publishing (DESIGN, decision 8): everything below `/stages`, and `/entries`.

POST   /stages                                  which topics; how many partitions they have
PUT    /stages/{writer}/{batch}/{stage}/{part}  stage entries
POST   /stages/{writer}/{batch}/commit          append what won, all at once, once
DELETE /stages/{writer}/{batch}[/{stage}]       drop what is staged, unless it is committed
GET    /stages/{writer}                         the last commit, and what is staged
POST   /entries                                 publish entries at once
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.core.bulk import append_bulk
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName, check_local
from penstock.model.stage import StageKey
from penstock.protocols.session import Gate, Session
from penstock.wire.checksum import crc32c

from .exchange import ClientGoneError, Exchange, Receive, Scope, Send, to_json
from .params import Params
from .produce_shapes import DECODE_ERRORS, reason
from .stage_body import MEDIA, sections_of, topics_of
from .stage_shapes import (
    AbortAnswer,
    AppendAnswer,
    Appended,
    CommitAnswer,
    CommitRequest,
    OpenAnswer,
    OpenRequest,
    OpenTopic,
    StageAnswer,
    StageCount,
    StagedBatch,
    WriterAnswer,
)

T = TypeVar("T")
Path = tuple[str, ...]
Handler = Callable[[Session, Path, Exchange], Awaitable[msgspec.Struct]]

COMMIT_BYTES_MAX: Final = 64 << 20  # a count for each task of the largest job
_NUMBER_MAX: Final = 2**63 - 1

_open_request: Final = msgspec.json.Decoder(OpenRequest)
_commit_request: Final = msgspec.json.Decoder(CommitRequest)


class StagesDoor:
    """An ASGI application."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._broker = gate.broker
        self._staging = gate.broker.staging
        # By the first segment and how many follow it.
        self._handlers: dict[tuple[str, int], Mapping[str, Handler]] = {
            ("stages", 0): {"POST": self._open},
            ("stages", 1): {"GET": self._status},
            ("stages", 2): {"DELETE": self._abort},
            ("stages", 3): {"POST": self._commit, "DELETE": self._abort},
            ("stages", 4): {"PUT": self._stage},
            ("entries", 0): {"POST": self._publish},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            path = _path(scope)
            methods = self._handlers.get((path[0], len(path) - 1))
            if methods is None:
                raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path'][:200]}")
            handler = methods.get(scope["method"])
            if handler is None:
                error = PenstockError(
                    ErrorKind.METHOD_NOT_ALLOWED, f"{scope['method']} is not for this resource"
                )
                await exchange.refuse(error, (b"allow", ", ".join(methods).encode()))
                return
            session = await self._gate.admit(exchange.authorization, scope)
            answer = await handler(session, path[1:], exchange)
            await exchange.answer(to_json(answer))
        except PenstockError as error:
            headers = self._gate.challenges if error.kind is ErrorKind.UNAUTHENTICATED else ()
            await exchange.refuse(error, *headers)
        except ClientGoneError:
            return

    async def _open(self, session: Session, path: Path, exchange: Exchange) -> OpenAnswer:
        wanted = await self._json(exchange, _open_request)
        names = [TopicName.parse(text) for text in wanted.topics]
        for name in names:
            session.may_produce(name)
        found: list[OpenTopic] = []
        for name in names:
            for topic in await self._broker.topics.all_of(name):
                topic.check_open()
            found.append(OpenTopic(topic=str(name), partitions=self._broker.topics.partitions(name)))
        return OpenAnswer(
            topics=found,
            max_part_bytes=self._gate.limits.max_request_bytes,
            max_message_bytes=self._broker.settings.max_message_bytes,
        )

    async def _stage(self, session: Session, path: Path, exchange: Exchange) -> StageAnswer:
        key = StageKey(_writer(path[0]), _number("batch", path[1]), check_local("stage", path[2]))
        part = _number("part", path[3])
        body = await self._sections(exchange)
        if self._staging.committed(key.writer, key.batch) is not None:
            for name in topics_of(body):
                session.may_produce(name)
            return StageAnswer(messages=0, size_bytes=0, committed=True)
        sections = await sections_of(self._broker, session, body)
        done = await self._staging.stage(key, part, crc32c(body), sections)
        return StageAnswer(
            messages=sum(entry.count for _, entries in sections for entry in entries),
            size_bytes=sum(len(entry.data) for _, entries in sections for entry in entries),
            committed=done is not None,
        )

    async def _commit(self, session: Session, path: Path, exchange: Exchange) -> CommitAnswer:
        writer, batch = _writer(path[0]), _number("batch", path[1])
        if path[2] != "commit":
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, "POST is for …/commit; a stage's parts are PUT")
        session.may_produce_somewhere()  # a batch of nothing names no topic, and takes the writer's name all the same
        wanted = await self._json(exchange, _commit_request, COMMIT_BYTES_MAX)
        commit, new = await self._staging.commit(
            writer,
            batch,
            [each.expected() for each in wanted.stages],
            may_produce=session.may_produce,
            owner=session.role or "",
            keep=wanted.keep,
        )
        return CommitAnswer.of(commit, batch, repeated=not new)

    async def _abort(self, session: Session, path: Path, exchange: Exchange) -> AbortAnswer:
        writer, batch = _writer(path[0]), _number("batch", path[1])
        session.may_produce_somewhere()
        dropped = await self._staging.abort(
            writer,
            batch,
            check_local("stage", path[2]) if len(path) > 2 else None,
            may_produce=session.may_produce,
            owner=session.role or "",
        )
        return AbortAnswer(dropped=dropped)

    async def _status(self, session: Session, path: Path, exchange: Exchange) -> WriterAnswer:
        writer = _writer(path[0])
        last, batches = self._staging.last(writer), self._staging.batches(writer)
        topics = {topic for held in batches.values() for topic in held.topics}
        topics |= {span.topic for span in (last.spans if last is not None else ())}
        for topic in sorted(topics):
            session.may_produce(TopicName.parse(topic))
        return WriterAnswer(
            writer=writer,
            committed=None if last is None else CommitAnswer.of(last, last.batch, repeated=False),
            staged=[
                StagedBatch(
                    batch=batch,
                    at=held.at,
                    stages=[StageCount.of(held.expected(stage)) for stage in held.stages],
                )
                for batch, held in batches.items()
            ],
        )

    async def _publish(self, session: Session, path: Path, exchange: Exchange) -> AppendAnswer:
        deduplicate = Params(exchange.scope["query_string"], ("deduplicate",)).flag("deduplicate")
        sections = await sections_of(self._broker, session, await self._sections(exchange))
        for topic, _ in sections:
            topic.check_open()
        results: list[Appended] = []
        for topic, entries in sections:
            placed, repeats = await append_bulk(topic, entries, deduplicate=deduplicate)
            done = Appended(
                topic=str(topic.name), messages=sum(entry.count for entry in entries), repeats=repeats
            )
            if placed is not None:
                done.offset = placed.offset
                done.message_id = str(MessageId(topic.ledger, placed.entry_id, topic.name.partition))
            results.append(done)
        return AppendAnswer(results=results)

    async def _sections(self, exchange: Exchange) -> bytes:
        kind = (exchange.header(b"content-type") or MEDIA).partition(";")[0].strip().lower()
        if kind != MEDIA:
            raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, f"entries come as {MEDIA}, not as {kind[:80]}")
        return await exchange.body(self._gate.limits.max_request_bytes)

    async def _json(
        self, exchange: Exchange, decoder: msgspec.json.Decoder[T], bytes_max: int | None = None
    ) -> T:
        body = await exchange.body(bytes_max or self._gate.limits.max_request_bytes)
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            raise PenstockError(ErrorKind.BAD_PARAMETER, reason(error)) from None
        except DECODE_ERRORS as error:
            raise PenstockError(ErrorKind.BAD_JSON, reason(error)) from None


def _path(scope: Scope) -> Path:
    """The segments, decoded. Raises INVALID_NAME."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    path = path.removeprefix(scope.get("root_path", "").encode())
    try:
        return tuple(unquote_to_bytes(part).decode() for part in path[1:].split(b"/"))
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.INVALID_NAME, "the path is no UTF-8") from None


def _writer(name: str) -> str:
    return check_local("writer", name)


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > _NUMBER_MAX:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{what} must be a number, not {text[:80]!r}")
    return int(text)
