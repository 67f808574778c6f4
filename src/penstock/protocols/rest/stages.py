"""The endpoint of staged publishing (docs/decisions/0018): everything below `/stages`, and `/entries`.

GET    /stages                                  the writers
POST   /stages                                  which topics; how many partitions they have
PUT    /stages/{writer}/{batch}/{stage}/{part}  stage entries
POST   /stages/{writer}/{batch}/commit          append what won, all at once, once
DELETE /stages/{writer}/{batch}[/{stage}]       drop what is staged
GET    /stages/{writer}                         the last commits, and what is staged
DELETE /stages/{writer}                         forget the last commits
POST   /entries                                 publish entries at once
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import msgspec

from penstock.engines.embedded.broker.writers import Caller as StagingCaller
from penstock.engines.embedded.topic.publish import publish_bulk
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName, check_local
from penstock.model.stage import StageKey, Writer
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Dialect, not_allowed, to_json
from penstock.protocols.http.exchange import Exchange, Receive, Scope, Send
from penstock.protocols.http.params import Params, whole_number
from penstock.protocols.load import network_of
from penstock.wire.checksum import crc32c

from .produce_shapes import decoded
from .stage_body import MEDIA, sections_of
from .stage_operations import APPEND_PARAMETERS, FORGET_PARAMETERS, LIST_PARAMETERS
from .stage_shapes import (
    AbortAnswer,
    AppendAnswer,
    Appended,
    CommitAnswer,
    CommitRequest,
    CommittedTarget,
    ForgetAnswer,
    ListedWriter,
    OpenAnswer,
    OpenRequest,
    OpenTopic,
    StageAnswer,
    StagedBatch,
    WriterAnswer,
    WritersAnswer,
)

T = TypeVar("T")
Path = tuple[str, ...]
Handler = Callable[[Caller, Path, Exchange], Awaitable[msgspec.Struct]]

COMMIT_BYTES_MAX: Final = 64 << 20  # a count for each task of the largest job
WRITERS_LISTED: Final = 100  # in one answer, unless the request says otherwise
WRITERS_LISTED_MAX: Final = 1_000

_open_request: Final = msgspec.json.Decoder(OpenRequest)
_commit_request: Final = msgspec.json.Decoder(CommitRequest)


class StagesEndpoint:
    """An ASGI application."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker = context.broker
        self._staging = context.broker.staging
        # By the first segment and how many follow it.
        self._handlers: dict[tuple[str, int], Mapping[str, Handler]] = {
            ("stages", 0): {"GET": self._list, "POST": self._open},
            ("stages", 1): {"GET": self._status, "DELETE": self._forget},
            ("stages", 2): {"DELETE": self._abort},
            ("stages", 3): {"POST": self._commit, "DELETE": self._abort},
            ("stages", 4): {"PUT": self._stage},
            ("entries", 0): {"POST": self._publish},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            path = tuple(exchange.segments())
            methods = self._handlers.get((path[0], len(path) - 1))
            if methods is None:
                raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {scope['path'][:200]}")
            handler = methods.get(scope["method"])
            if handler is None:
                raise not_allowed(exchange.method, list(methods))
            caller = await Caller.admit(self._context, exchange.authorization, scope)
            answer = await handler(caller, path[1:], exchange)
            await exchange.answer(to_json(answer))
        except Exception as error:
            await exchange.fail(error, self._context, Dialect.REST)

    async def _open(self, caller: Caller, path: Path, exchange: Exchange) -> OpenAnswer:
        wanted = await self._json(exchange, _open_request)
        names = [TopicName.parse(text) for text in wanted.topics]
        for name in names:
            caller.may_produce(name)
        found: list[OpenTopic] = []
        for name in names:
            for topic in await self._broker.topics.all_of(name):
                topic.check_open()
            found.append(OpenTopic(topic=str(name), partitions=self._broker.topics.partitions(name)))
        return OpenAnswer(
            topics=found,
            max_part_bytes=self._context.limits.max_request_bytes,
            max_message_bytes=self._broker.settings.max_message_bytes,
        )

    async def _stage(self, caller: Caller, path: Path, exchange: Exchange) -> StageAnswer:
        key = StageKey(_writer(path[0]), whole_number("batch", path[1]), check_local("stage", path[2]))
        part = whole_number("part", path[3])
        body = await self._sections(exchange)
        sections = await sections_of(self._broker, caller, body)
        await self._staging.stage(key, part, crc32c(body), sections, _staging_caller(caller, exchange))
        return StageAnswer(
            messages=sum(entry.count for _, entries in sections for entry in entries),
            size_bytes=sum(len(entry.data) for _, entries in sections for entry in entries),
        )

    async def _commit(self, caller: Caller, path: Path, exchange: Exchange) -> CommitAnswer:
        writer, batch = _writer(path[0]), whole_number("batch", path[1])
        if path[2] != "commit":
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, "POST is for …/commit; a stage's parts are PUT")
        caller.may_produce_somewhere()  # a batch of nothing names no topic, and takes the writer's name all the same
        wanted = await self._json(exchange, _commit_request, COMMIT_BYTES_MAX)
        commit, new = await self._staging.commit(
            writer,
            batch,
            [each.expected() for each in wanted.stages],
            _staging_caller(caller, exchange),
            topics=[TopicName.parse(text) for text in wanted.topics],
            keep=wanted.keep,
        )
        return CommitAnswer.of(commit, repeated=not new)

    async def _abort(self, caller: Caller, path: Path, exchange: Exchange) -> AbortAnswer:
        writer, batch = _writer(path[0]), whole_number("batch", path[1])
        caller.may_produce_somewhere()
        stage = check_local("stage", path[2]) if len(path) > 2 else None
        return AbortAnswer(
            dropped=await self._staging.abort(writer, batch, _staging_caller(caller, exchange), stage)
        )

    async def _list(self, caller: Caller, path: Path, exchange: Exchange) -> WritersAnswer:
        params = Params(exchange.scope["query_string"], LIST_PARAMETERS)
        most = params.number("max_writers", most=WRITERS_LISTED_MAX) or WRITERS_LISTED
        found, more = await self._staging.writers(
            _staging_caller(caller, exchange), params.text("after") or "", most
        )
        return WritersAnswer(
            writers=[
                ListedWriter(
                    writer=writer.name,
                    owner=writer.owner,
                    at=writer.at,
                    targets=[CommittedTarget.of(target) for target in targets],
                    staged_batches=len(self._staging.batches(writer.name)),
                    staged_bytes=self._staging.size_of(writer.name),
                )
                for writer, targets in found
            ],
            next=found[-1][0].name if more and found else None,
        )

    async def _status(self, caller: Caller, path: Path, exchange: Exchange) -> WriterAnswer:
        name = _writer(path[0])
        caller.may_produce_somewhere()
        found = await self._staging.writer(name, _staging_caller(caller, exchange))
        writer, targets = found or (Writer(name, "", "", 0), [])
        return WriterAnswer(
            writer=name,
            owner=writer.owner,
            at=writer.at,
            targets=[CommittedTarget.of(target) for target in targets],
            staged=[StagedBatch.of(batch, held) for batch, held in self._staging.batches(name).items()],
        )

    async def _forget(self, caller: Caller, path: Path, exchange: Exchange) -> ForgetAnswer:
        name = _writer(path[0])
        caller.may_produce_somewhere()
        params = Params(exchange.scope["query_string"], FORGET_PARAMETERS)
        given = params.texts("topics")
        topics = None if given is None else [TopicName.parse(text) for text in given if text]
        await self._staging.forget(
            name, _staging_caller(caller, exchange), topics, force=params.flag("force")
        )
        told = None if topics is None else sorted({str(topic.base) for topic in topics})
        return ForgetAnswer(forgotten=name, topics=told)

    async def _publish(self, caller: Caller, path: Path, exchange: Exchange) -> AppendAnswer:
        deduplicate = Params(exchange.scope["query_string"], APPEND_PARAMETERS).flag("deduplicate")
        sections = await sections_of(self._broker, caller, await self._sections(exchange))
        for topic, _ in sections:
            topic.check_open()
        results: list[Appended] = []
        for topic, entries in sections:
            placed, repeats = await publish_bulk(topic, entries, deduplicate=deduplicate)
            done = Appended(
                topic=str(topic.name), messages=sum(entry.count for entry in entries), repeats=repeats
            )
            if deduplicate and entries:
                done.last_sequence_id = topic.sequences.last(entries[-1].producer)
            if placed is not None:
                done.offset = placed.offset
                done.message_id = str(MessageId(topic.ledger, placed.entry_id, topic.name.partition))
            results.append(done)
        return AppendAnswer(results=results)

    async def _sections(self, exchange: Exchange) -> bytes:
        kind = (exchange.header(b"content-type") or MEDIA).partition(";")[0].strip().lower()
        if kind != MEDIA:
            raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, f"entries come as {MEDIA}, not as {kind[:80]}")
        return await exchange.body(self._context.limits.max_request_bytes)

    async def _json(
        self, exchange: Exchange, decoder: msgspec.json.Decoder[T], bytes_max: int | None = None
    ) -> T:
        body = await exchange.body(bytes_max or self._context.limits.max_request_bytes)
        return decoded(decoder, body)


def _staging_caller(caller: Caller, exchange: Exchange) -> StagingCaller:
    """Who stages, for what is kept of him: his role, or where that is off the address that he comes from."""
    address = (exchange.scope.get("client") or ("",))[0]
    return StagingCaller(
        role=caller.role or "",
        origin=caller.role or f"address {network_of(address)}",
        superuser=caller.is_super,
        may_produce=caller.may_produce,
        forbidden=caller.forbidden_writer,
    )


def _writer(name: str) -> str:
    return check_local("writer", name)
