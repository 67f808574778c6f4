"""Staged publishing (docs/decisions/0018): everything below `/stages`, and the endpoint that serves it and `/entries`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.broker.capability import Capability, require
from penstock.broker.staging import Caller as StagingCaller
from penstock.broker.staging import Expected
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_local
from penstock.model.stage import StageKey, Writer
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Dialect, to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import ALWAYS as LISTING
from penstock.protocols.http.operations import Handlers, Operation, Table
from penstock.protocols.http.params import Parameter, Params, whole_number
from penstock.protocols.http.paths import segments as segments_of
from penstock.protocols.load import network_of
from penstock.wire.contents import crc32c

from . import entries
from .entries import MEDIA, PUBLISHING, SECTIONS, sections_body, sections_of
from .operations import ALWAYS, FLAG
from .stage_shapes import (
    AbortAnswer,
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
    copied,
)

Names = Mapping[str, str]
Handler = Callable[[ServerContext, Caller, Names, Exchange], Awaitable[msgspec.Struct]]

COMMIT_BYTES_MAX: Final = 64 << 20  # a count for each task of the largest job
WRITERS_LISTED: Final = 100  # in one answer, unless the request says otherwise
WRITERS_LISTED_MAX: Final = 1_000

_open_request: Final = msgspec.json.Decoder(OpenRequest)
_commit_request: Final = msgspec.json.Decoder(CommitRequest)

_WRITER: Final = "/stages/{writer}"
_BATCH: Final = f"{_WRITER}/{{batch}}"
_JSON: Final = (*ALWAYS, ErrorKind.NOT_SUPPORTED, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE)
_ABORTING: Final = (*ALWAYS, ErrorKind.NOT_SUPPORTED, ErrorKind.STAGE_CONFLICT)
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NUMBERS: Final = tuple(
    Parameter(name, text, _NUMBER, "path")
    for name, text in (("batch", "The writer's number for it."), ("part", "Which part of the stage."))
)
_LIST: Final = (
    Parameter("after", "Only writers whose names come after this one."),
    Parameter("max_writers", "At most so many.", {"type": "integer", "minimum": 1, "default": 100}),
)
_FORGET: Final = (
    Parameter(
        "topics",
        "A topic of the set; several are given one by one, and none at all as an empty one.",
        {"type": "array", "items": {"type": "string"}},
    ),
    Parameter("force", "Drop what the writer has staged.", FLAG),
)

operations: Final = Table("stage")


@operations.on(
    "GET",
    "/stages",
    summary="The writers, with their last commits: those of the role, or all for a superuser.",
    parameters=_LIST,
    answer=WritersAnswer,
    errors=(*LISTING, ErrorKind.NOT_SUPPORTED),
)
async def writers(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> WritersAnswer:
    staging = context.broker.staging
    params = Params(exchange.scope["query_string"], _LIST)
    most = params.number("max_writers", most=WRITERS_LISTED_MAX) or WRITERS_LISTED
    found, more = await staging.writers(_staging(caller, exchange), params.text("after") or "", most)
    return WritersAnswer(
        writers=[
            ListedWriter(
                writer=writer.name,
                owner=writer.owner,
                at=writer.at,
                targets=copied(targets, list[CommittedTarget]),
                staged_batches=len(staging.batches(writer.name)),
                staged_bytes=staging.size_of(writer.name),
            )
            for writer, targets in found
        ],
        next=found[-1][0].name if more and found else None,
    )


@operations.on(
    "POST",
    "/stages",
    summary="Name the topics that are about to be published to, staged or at once.",
    request=OpenRequest,
    answer=OpenAnswer,
    errors=(*_JSON, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.TOPIC_TERMINATED),
)
async def open_topics(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> OpenAnswer:
    wanted = await exchange.json(_open_request, context.limits.max_request_bytes)
    given = [TopicName.parse(text) for text in wanted.topics]
    for name in given:
        caller.may_produce(name)
    topics = context.broker.topics
    found: list[OpenTopic] = []
    for name in given:
        for topic in await topics.all_of(name):
            topic.check_open()
        found.append(OpenTopic(topic=str(name), partitions=topics.partitions(name)))
    return OpenAnswer(
        topics=found,
        staged=Capability.STAGED_PUBLISH in context.broker.capabilities,
        max_part_bytes=context.limits.max_request_bytes,
        max_message_bytes=context.broker.settings.max_message_bytes,
    )


@operations.on(
    "GET",
    _WRITER,
    summary="A writer's last commits, and what it has staged.",
    answer=WriterAnswer,
    errors=(*ALWAYS, ErrorKind.NOT_SUPPORTED),
)
async def status(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> WriterAnswer:
    staging, name = context.broker.staging, _writer(names)
    caller.may_produce_somewhere()
    found = await staging.writer(name, _staging(caller, exchange))
    writer, targets = found or (Writer(name, "", "", 0), [])
    return WriterAnswer(
        writer=name,
        owner=writer.owner,
        at=writer.at,
        targets=copied(targets, list[CommittedTarget]),
        staged=[StagedBatch.of(batch, held) for batch, held in staging.batches(name).items()],
    )


@operations.on(
    "DELETE",
    _WRITER,
    summary="Forget a writer, or its last commit to a set of topics: a batch that comes again is new then.",
    description="A writer that has something staged is not forgotten, unless `force` drops that, too.",
    parameters=_FORGET,
    answer=ForgetAnswer,
    errors=(*_ABORTING, ErrorKind.NOT_FOUND),
)
async def forget(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> ForgetAnswer:
    name = _writer(names)
    caller.may_produce_somewhere()
    params = Params(exchange.scope["query_string"], _FORGET)
    given = params.texts("topics")
    topics = None if given is None else [TopicName.parse(text) for text in given if text]
    await context.broker.staging.forget(name, _staging(caller, exchange), topics, force=params.flag("force"))
    forgotten = None if topics is None else sorted({str(topic.base) for topic in topics})
    return ForgetAnswer(forgotten=name, topics=forgotten)


@operations.on(
    "PUT",
    f"{_BATCH}/{{stage}}/{{part}}",
    summary="Stage entries; nobody sees them before the commit.",
    description=f"{SECTIONS} The same part again changes nothing.",
    parameters=_NUMBERS,
    bodies=(MEDIA,),
    answer=StageAnswer,
    errors=(*PUBLISHING, ErrorKind.STAGE_CONFLICT, ErrorKind.TOO_MANY_REQUESTS),
)
async def stage(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> StageAnswer:
    key = StageKey(_writer(names), _batch(names), check_local("stage", names["stage"]))
    part = whole_number("part", names["part"])
    body = await sections_body(context, exchange)
    sections = await sections_of(context.broker, caller, body)
    await context.broker.staging.stage(key, part, crc32c(body), sections, _staging(caller, exchange))
    return StageAnswer(
        messages=sum(entry.count for _, entries in sections for entry in entries),
        size_bytes=sum(len(entry.data) for _, entries in sections for entry in entries),
    )


@operations.on(
    "POST",
    f"{_BATCH}/commit",
    summary="Append what the stages hold to their topics, all at once; once, however often it is asked for.",
    description=(
        "Batches are numbered by writer and set of `topics`. One above the last is new. The last one again is a"
        " repeat where as many messages of each topic are staged as were committed, and no topic that has messages of the"
        " commit was deleted since. Anything else is 40911."
    ),
    parameters=_NUMBERS[:1],
    request=CommitRequest,
    answer=CommitAnswer,
    errors=(
        *_JSON,
        ErrorKind.STAGE_NOT_FOUND,
        ErrorKind.STAGE_CONFLICT,
        ErrorKind.BATCH_CONFLICT,
        ErrorKind.TOO_MANY_REQUESTS,
        ErrorKind.TOPIC_NOT_FOUND,
        ErrorKind.TOPIC_TERMINATED,
        ErrorKind.EXCLUSIVE_PRODUCER,
        ErrorKind.BACKLOG_QUOTA_HOLD,
        ErrorKind.BACKLOG_QUOTA_EXCEPTION,
        ErrorKind.STORAGE_FULL,
        ErrorKind.STORAGE_FAILED,
    ),
)
async def commit(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> CommitAnswer:
    writer, batch = _writer(names), _batch(names)
    caller.may_produce_somewhere()  # a batch of nothing names no topic, and takes the writer's name all the same
    wanted = await exchange.json(_commit_request, COMMIT_BYTES_MAX)
    done, new = await context.broker.staging.commit(
        writer,
        batch,
        copied(wanted.stages, list[Expected]),
        _staging(caller, exchange),
        topics=[TopicName.parse(text) for text in wanted.topics],
        keep=wanted.keep,
    )
    return CommitAnswer.of(done, repeated=not new)


@operations.on(
    "DELETE",
    f"{_BATCH}/{{stage}}",
    summary="Drop one stage; what is committed stays.",
    parameters=_NUMBERS[:1],
    answer=AbortAnswer,
    errors=_ABORTING,
)
@operations.on(
    "DELETE",
    _BATCH,
    summary="Drop what is staged for a batch; what is committed stays.",
    parameters=_NUMBERS[:1],
    answer=AbortAnswer,
    errors=_ABORTING,
)
async def abort(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> AbortAnswer:
    writer, batch = _writer(names), _batch(names)
    caller.may_produce_somewhere()
    one = check_local("stage", names["stage"]) if "stage" in names else None
    return AbortAnswer(
        dropped=await context.broker.staging.abort(writer, batch, _staging(caller, exchange), one)
    )


def _writer(names: Names) -> str:
    return check_local("writer", names["writer"])


def _batch(names: Names) -> int:
    return whole_number("batch", names["batch"])


def _staging(caller: Caller, exchange: Exchange) -> StagingCaller:
    """The caller for staging: its role, or where authentication is off the address that it comes from."""
    address = (exchange.scope.get("client") or ("",))[0]
    return StagingCaller(
        role=caller.role or "",
        origin=caller.role or f"address {network_of(address)}",
        superuser=caller.is_super,
        may_produce=caller.may_produce,
        forbidden=caller.forbidden_writer,
    )


OPERATIONS: Final[Sequence[Operation]] = [*operations, *entries.operations]


class StagesEndpoint:
    """Serves the operations above."""

    _handlers: Final = Handlers(OPERATIONS)

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def __call__(self, exchange: Exchange) -> None:
        try:
            handler, names = self._find(exchange)
            caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
            at_once = handler in (open_topics, entries.publish)
            require(self._context.broker, Capability.ENTRIES if at_once else Capability.STAGED_PUBLISH)
            await exchange.answer(to_json(await handler(self._context, caller, names, exchange)))
        except Exception as error:
            await exchange.fail(error, self._context, Dialect.REST)

    def _find(self, exchange: Exchange) -> tuple[Handler, Names]:
        segments = segments_of(exchange.scope)
        try:
            return self._handlers.find(exchange.method, segments)
        except PenstockError as error:
            if (
                error.kind is ErrorKind.METHOD_NOT_ALLOWED
                and exchange.method == "POST"
                and len(segments) == 4
            ):
                raise PenstockError(error.kind, "POST is for …/commit; a stage's parts are PUT") from None
            raise
