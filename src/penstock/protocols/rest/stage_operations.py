"""Staged publishing's operations, for the interface's description."""

from collections.abc import Sequence
from typing import Final

from penstock.model.errors import ErrorKind
from penstock.protocols.http.operations import ALWAYS, Operation
from penstock.protocols.http.params import Parameter

from .stage_body import MEDIA
from .stage_shapes import (
    AbortAnswer,
    AppendAnswer,
    CommitAnswer,
    CommitRequest,
    ForgetAnswer,
    OpenAnswer,
    OpenRequest,
    StageAnswer,
    WriterAnswer,
    WritersAnswer,
)

_NUMBER: Final = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_PATH: Final = tuple(
    Parameter(name, text, _NUMBER, "path")
    for name, text in (("batch", "The writer's number for it."), ("part", "Which part of the stage."))
)
_BODY: Final = (
    "Sections: topic size u16, topic, count u32, then entries, each with its size u32 before it; big endian. A"
    " topic is a log's full name; an entry is Pulsar's."
)

_ALWAYS: Final = (*ALWAYS, ErrorKind.INVALID_NAME)
_JSON: Final = (*_ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE)
_PUBLISHING: Final = (
    *_ALWAYS,
    ErrorKind.BAD_ENCODING,
    ErrorKind.CHECKSUM,
    ErrorKind.BAD_MEDIA_TYPE,
    ErrorKind.TOO_LARGE,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.SCHEMA_NOT_FOUND,
    ErrorKind.INCOMPATIBLE_SCHEMA,
    ErrorKind.TOPIC_TERMINATED,
    ErrorKind.STORAGE_FULL,
    ErrorKind.STORAGE_FAILED,
)
_ABORTING: Final = (*_ALWAYS, ErrorKind.STAGE_CONFLICT)
_WRITER: Final = "/stages/{writer}"
_BATCH: Final = f"{_WRITER}/{{batch}}"

LIST_PARAMETERS: Final = (
    Parameter("after", "Only writers whose names come after this one."),
    Parameter("max_writers", "At most so many.", {"type": "integer", "minimum": 1, "default": 100}),
)
FORGET_PARAMETERS: Final = (
    Parameter(
        "topics",
        "A topic of the set; several are given one by one, and none at all as an empty one.",
        {"type": "array", "items": {"type": "string"}},
    ),
    Parameter("force", "Drop what the writer has staged.", {"type": "boolean"}),
)
APPEND_PARAMETERS: Final = (Parameter("deduplicate", "", {"type": "boolean"}),)

OPERATIONS: Final[Sequence[Operation]] = [
    Operation(
        method="GET",
        path="/stages",
        tag="stage",
        summary="The writers, with their last commits: those of the role, or all for a superuser.",
        parameters=LIST_PARAMETERS,
        answer=WritersAnswer,
        errors=ALWAYS,
    ),
    Operation(
        method="POST",
        path="/stages",
        tag="stage",
        summary="Name the topics that are about to be published to.",
        request=OpenRequest,
        answer=OpenAnswer,
        errors=(*_JSON, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.TOPIC_TERMINATED),
    ),
    Operation(
        method="GET",
        path=_WRITER,
        tag="stage",
        summary="A writer's last commits, and what it has staged.",
        answer=WriterAnswer,
        errors=_ALWAYS,
    ),
    Operation(
        method="DELETE",
        path=_WRITER,
        tag="stage",
        summary="Forget a writer, or its last commit to a set of topics: a batch that comes again is new then.",
        description="A writer that has something staged is not forgotten, unless `force` drops that, too.",
        parameters=FORGET_PARAMETERS,
        answer=ForgetAnswer,
        errors=(*_ABORTING, ErrorKind.NOT_FOUND),
    ),
    Operation(
        method="PUT",
        path=f"{_BATCH}/{{stage}}/{{part}}",
        tag="stage",
        summary="Stage entries; nobody sees them before the commit.",
        description=f"{_BODY} The same part again changes nothing.",
        parameters=_PATH,
        bodies=(MEDIA,),
        answer=StageAnswer,
        errors=(*_PUBLISHING, ErrorKind.STAGE_CONFLICT, ErrorKind.TOO_MANY_REQUESTS),
    ),
    Operation(
        method="POST",
        path=f"{_BATCH}/commit",
        tag="stage",
        summary="Append what the stages hold to their topics, all at once; once, however often it is asked for.",
        description=(
            "Batches are numbered by writer and set of `topics`. One above the last is new. The last one again is a"
            " repeat where as many messages of each topic are staged as were committed, and no topic that has messages of the"
            " commit was deleted since. Anything else is 40911."
        ),
        parameters=_PATH[:1],
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
    ),
    Operation(
        method="DELETE",
        path=_BATCH,
        tag="stage",
        summary="Drop what is staged for a batch; what is committed stays.",
        parameters=_PATH[:1],
        answer=AbortAnswer,
        errors=_ABORTING,
    ),
    Operation(
        method="DELETE",
        path=f"{_BATCH}/{{stage}}",
        tag="stage",
        summary="Drop one stage; what is committed stays.",
        parameters=_PATH[:1],
        answer=AbortAnswer,
        errors=_ABORTING,
    ),
    Operation(
        method="POST",
        path="/entries",
        tag="stage",
        summary="Publish entries at once.",
        description=f"{_BODY} With `deduplicate`, entries whose ids their producer has stored are passed over.",
        parameters=APPEND_PARAMETERS,
        bodies=(MEDIA,),
        answer=AppendAnswer,
        errors=(*_PUBLISHING, ErrorKind.EXCLUSIVE_PRODUCER),
    ),
]
