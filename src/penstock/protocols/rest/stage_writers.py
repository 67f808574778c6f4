"""The writers that stage (docs/decisions/0018): their list, details of one, and the topics they begin with."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.broker.capability import Capability, offered
from penstock.broker.staging import Caller as StagingCaller
from penstock.broker.staging import Staging, WriterState
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName, check_local
from penstock.model.stage import Writer
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import ALWAYS as LISTING
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.load import network_of

from .operations import ALWAYS, FLAG
from .stage_shapes import (
    CommittedTarget,
    ForgetAnswer,
    ListedWriter,
    OpenAnswer,
    OpenRequest,
    OpenTopic,
    StagedBatch,
    WriterAnswer,
    WritersAnswer,
    copied,
)

Names = Mapping[str, str]

WRITERS_LISTED: Final = 100  # in one answer, unless the request says otherwise
WRITERS_LISTED_MAX: Final = 1_000

_open_request: Final = msgspec.json.Decoder(OpenRequest)

WRITER: Final = "/stages/{writer}"
JSON: Final = (*ALWAYS, ErrorKind.NOT_SUPPORTED, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE)
ABORTING: Final = (*ALWAYS, ErrorKind.NOT_SUPPORTED, ErrorKind.STAGE_CONFLICT)
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
    params = Params(exchange.scope["query_string"], _LIST)
    most = params.number("max_writers", most=WRITERS_LISTED_MAX) or WRITERS_LISTED
    found, more = await staging_of(context).writers(
        staging_caller(caller, exchange), params.text("after") or "", most
    )
    return WritersAnswer(
        writers=[
            ListedWriter(
                writer=one.writer.name,
                owner=one.writer.owner,
                at=one.writer.at,
                targets=copied(one.targets, list[CommittedTarget]),
                staged_batches=len(one.batches),
                staged_bytes=one.size_bytes,
            )
            for one in found
        ],
        next=found[-1].writer.name if more and found else None,
    )


@operations.on(
    "POST",
    "/stages",
    summary="Name the topics that are about to be published to, staged or at once.",
    request=OpenRequest,
    answer=OpenAnswer,
    errors=(
        *JSON,
        ErrorKind.TOPIC_NOT_FOUND,
        ErrorKind.PARTITION_NOT_FOUND,
        ErrorKind.TOPIC_TERMINATED,
        ErrorKind.SCHEMA_NOT_FOUND,
    ),
)
async def open_topics(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> OpenAnswer:
    wanted = await exchange.json(_open_request, context.limits.max_request_bytes)
    given = [TopicName.parse(text) for text in wanted.topics]
    topics = context.broker.topics
    for name in given:
        await topics.learn(name)
        caller.may_produce(name)
    found: list[OpenTopic] = []
    for text, name in zip(wanted.topics, given, strict=True):
        for topic in await topics.all_of(name):
            topic.check_open()
        version = wanted.key_versions.get(text)
        prefix = b"" if version is None else await context.broker.schemas.key_prefix(name, version)
        found.append(
            OpenTopic(
                topic=str(name),
                partitions=topics.partitions(name),
                partitioner=context.broker.partitioner,
                key_prefix=b64encode(prefix).decode(),
            )
        )
    return OpenAnswer(
        topics=found,
        staged=Capability.STAGED_PUBLISH in context.broker.capabilities,
        max_part_bytes=context.limits.max_request_bytes,
        max_message_bytes=context.broker.settings.max_message_bytes,
    )


@operations.on(
    "GET",
    WRITER,
    summary="A writer's last commits, and what it has staged.",
    answer=WriterAnswer,
    errors=(*ALWAYS, ErrorKind.NOT_SUPPORTED),
)
async def status(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> WriterAnswer:
    staging, name = staging_of(context), writer_of(names)
    caller.may_produce_somewhere()
    found = await staging.writer(name, staging_caller(caller, exchange))
    found = found or WriterState(Writer(name, "", "", 0), [], {}, 0)
    return WriterAnswer(
        writer=name,
        owner=found.writer.owner,
        at=found.writer.at,
        targets=copied(found.targets, list[CommittedTarget]),
        staged=[StagedBatch.of(batch, held) for batch, held in found.batches.items()],
    )


@operations.on(
    "DELETE",
    WRITER,
    summary="Forget a writer, or its last commit to a set of topics: a batch that comes again is new then.",
    description="A writer that has something staged is not forgotten, unless `force` drops that, too.",
    parameters=_FORGET,
    answer=ForgetAnswer,
    errors=(*ABORTING, ErrorKind.NOT_FOUND),
)
async def forget(context: ServerContext, caller: Caller, names: Names, exchange: Exchange) -> ForgetAnswer:
    name = writer_of(names)
    caller.may_produce_somewhere()
    params = Params(exchange.scope["query_string"], _FORGET)
    given = params.texts("topics")
    topics = None if given is None else [TopicName.parse(text) for text in given if text]
    await staging_of(context).forget(
        name, staging_caller(caller, exchange), topics, force=params.flag("force")
    )
    forgotten = None if topics is None else sorted({str(topic.base) for topic in topics})
    return ForgetAnswer(forgotten=name, topics=forgotten)


def staging_of(context: ServerContext) -> Staging:
    """Staged publishing of the engine; raises NOT_SUPPORTED if it has none."""
    return offered(context.broker.staging, Capability.STAGED_PUBLISH.value)


def writer_of(names: Names) -> str:
    """The writer that a path names; raises BAD_PARAMETER for an invalid name."""
    return check_local("writer", names["writer"])


def staging_caller(caller: Caller, exchange: Exchange) -> StagingCaller:
    """The caller for staging: its role, or its address if authentication is off."""
    address = (exchange.scope.get("client") or ("",))[0]
    return StagingCaller(
        role=caller.role or "",
        origin=caller.role or f"address {network_of(address)}",
        superuser=caller.is_super,
        may_produce=caller.may_produce,
        forbidden=caller.forbidden_writer,
    )
