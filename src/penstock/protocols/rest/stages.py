"""Staged publishing (docs/decisions/0018): batches of a writer below `/stages`, and the endpoint that serves them, the writers and
`/entries`."""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.broker.capability import Capability, require
from penstock.broker.staging import Expected
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_local
from penstock.model.stage import StageKey
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, Dialect, to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.operations import Handlers, Operation, Table
from penstock.protocols.http.params import Parameter, whole_number
from penstock.protocols.http.paths import segments as segments_of
from penstock.protocols.lasting import asked_wait_s
from penstock.wire.contents import crc32c

from . import entries, stage_writers
from .entries import MEDIA, PUBLISHING, SECTIONS, sections_body, sections_of
from .operations import ALWAYS
from .stage_shapes import (
    AbortAnswer,
    CommitAnswer,
    CommitProgress,
    CommitRequest,
    CommitState,
    StageAnswer,
    copied,
)
from .stage_writers import ABORTING, JSON, WRITER, Names, open_topics, staging_caller, staging_of, writer_of

Handler = Callable[
    [ServerContext, Caller, Names, Exchange], Awaitable[msgspec.Struct]
]  # an answer with 200, or an `Answer`

COMMIT_BYTES_MAX: Final = 64 << 20  # a count for each task of the largest job

_commit_request: Final = msgspec.json.Decoder(CommitRequest)

_BATCH: Final = f"{WRITER}/{{batch}}"
_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NUMBERS: Final = tuple(
    Parameter(name, text, _NUMBER, "path")
    for name, text in (("batch", "The writer's number for it."), ("part", "Which part of the stage."))
)

_PREFER: Final = Parameter(
    "Prefer", "`respond-async`, and `wait` in seconds, 10 by default, 30 at most (RFC 7240).", where="header"
)

operations: Final = Table("stage")


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
    key = StageKey(writer_of(names), _batch(names), check_local("stage", names["stage"]))
    part = whole_number("part", names["part"])
    body = await sections_body(context, exchange)
    sections = await sections_of(context.broker, caller, body)
    await staging_of(context).stage(key, part, crc32c(body), sections, staging_caller(caller, exchange))
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
        " commit was deleted since. Anything else is 40911. With `Prefer: respond-async, wait=10` the answer is 202 if the"
        " commit takes longer than that many seconds: ask for its progress, and send the same request again for its result."
    ),
    parameters=(*_NUMBERS[:1], _PREFER),
    request=CommitRequest,
    answer=CommitAnswer,
    accepted=CommitProgress,
    errors=(
        *JSON,
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
async def commit(
    context: ServerContext, caller: Caller, names: Names, exchange: Exchange
) -> CommitAnswer | Answer:
    writer, batch = writer_of(names), _batch(names)
    caller.may_produce_somewhere()  # a batch of nothing names no topic, and takes the writer's name all the same
    body = await exchange.body(COMMIT_BYTES_MAX)
    wanted = exchange.decoded(body, _commit_request)
    staging, committing = staging_of(context), staging_caller(caller, exchange)

    async def work() -> CommitAnswer:
        done, new = await staging.commit(
            writer,
            batch,
            copied(wanted.stages, list[Expected]),
            committing,
            topics=[TopicName.parse(text) for text in wanted.topics],
            keep=wanted.keep,
        )
        return CommitAnswer.of(done, repeated=not new)

    wait_s = asked_wait_s(exchange.header(b"prefer"))
    if wait_s is None:
        return await work()
    subject = writer, batch, committing.role
    answer: CommitAnswer | None = await context.lasting.result(subject, sha256(body).digest(), work, wait_s)
    if answer is not None:
        return answer
    location = f"/stages/{quote(writer, safe='')}/{batch}/commit"
    shown = _progress(context, writer, batch, context.lasting.since(subject))
    return Answer(status=202, body=shown, headers={"location": location})


@operations.on(
    "GET",
    f"{_BATCH}/commit",
    summary="Whether a batch is being committed, or was.",
    parameters=_NUMBERS[:1],
    answer=CommitProgress,
    errors=(*ALWAYS, ErrorKind.NOT_SUPPORTED),
)
async def progress(
    context: ServerContext, caller: Caller, names: Names, exchange: Exchange
) -> CommitProgress:
    writer, batch = writer_of(names), _batch(names)
    caller.may_produce_somewhere()
    asking = staging_caller(caller, exchange)
    since = context.lasting.since((writer, batch, asking.role))
    if since is not None:  # a store that commits may not answer before it is done
        return _progress(context, writer, batch, since)
    found = await staging_of(context).writer(writer, asking)
    done = found is not None and any(each.batch == batch for each in found.targets)
    return _progress(context, writer, batch, None, done=done)


def _progress(
    context: ServerContext, writer: str, batch: int, since: int | None, *, done: bool = False
) -> CommitProgress:
    state = CommitState.COMMITTED if done else CommitState.OPEN
    return CommitProgress(
        writer=writer,
        batch=batch,
        state=state if since is None else CommitState.COMMITTING,
        process=context.lasting.process,
        since=since,
    )


@operations.on(
    "DELETE",
    f"{_BATCH}/{{stage}}",
    summary="Drop one stage; what is committed stays.",
    parameters=_NUMBERS[:1],
    answer=AbortAnswer,
    errors=ABORTING,
)
@operations.on(
    "DELETE",
    _BATCH,
    summary="Drop what is staged for a batch; what is committed stays.",
    parameters=_NUMBERS[:1],
    answer=AbortAnswer,
    errors=ABORTING,
)
async def abort(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> AbortAnswer:
    writer, batch = writer_of(names), _batch(names)
    caller.may_produce_somewhere()
    one = check_local("stage", names["stage"]) if "stage" in names else None
    return AbortAnswer(
        dropped=await staging_of(context).abort(writer, batch, staging_caller(caller, exchange), one)
    )


def _batch(names: Names) -> int:
    return whole_number("batch", names["batch"])


OPERATIONS: Final[Sequence[Operation]] = [*stage_writers.operations, *operations, *entries.operations]


class StagesEndpoint:
    """Serves all of `OPERATIONS`."""

    _handlers: Final = Handlers(OPERATIONS)

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    async def __call__(self, exchange: Exchange) -> None:
        operation = ""
        try:
            operation, handler, names = self._find(exchange)
            caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
            if handler in (open_topics, entries.publish):
                require(self._context.broker.capabilities, Capability.ENTRIES)
            else:
                staging_of(self._context)
            answer = await handler(self._context, caller, names, exchange)
            if isinstance(answer, Answer):
                await exchange.give(answer)
            else:
                await exchange.answer(to_json(answer))
        except Exception as error:
            await fail(exchange, error, self._context, Dialect.REST, operation)

    def _find(self, exchange: Exchange) -> tuple[str, Handler, Names]:
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
