"""The endpoint's operations, for the interface's description."""

from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind
from penstock.protocols.http.openapi import Operation, Parameter

from .bodies import TAKEN
from .representations import OFFERED

_TAG: Final = "kafka rest"
_PARTITION: Final = "/kafka/topics/{topic}/{partition}"


class Welcome(msgspec.Struct):
    """Where to go from `/kafka`."""

    topics: str
    topic: str
    partition: str
    docs: str


class PartitionLink(msgspec.Struct):
    """One partition and where it is."""

    partition: int
    href: str


class TopicAnswer(msgspec.Struct):
    """A topic of public/default."""

    topic: str
    partitions: list[PartitionLink]


def _header(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"}, "header")


_ALWAYS: Final = (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN, ErrorKind.UNAVAILABLE)
_NAMED: Final = (*_ALWAYS, ErrorKind.INVALID_NAME, ErrorKind.TOPIC_NOT_FOUND)

_READING: Final[dict[str, Any]] = {
    "path": _PARTITION,
    "tag": _TAG,
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
    ),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/kafka",
        tag=_TAG,
        summary="Welcome: a page for people, JSON for programs.",
        answer=Welcome,
        answers=("text/html",),
        errors=_ALWAYS,
    ),
    Operation(
        method="GET",
        path="/kafka/topics",
        tag=_TAG,
        summary="The topics of public/default.",
        answer=list[str],
        errors=_ALWAYS,
    ),
    Operation(
        method="GET",
        path="/kafka/topics/{topic}",
        tag=_TAG,
        summary="The partitions of a topic.",
        answer=TopicAnswer,
        errors=_NAMED,
    ),
    Operation(method="GET", summary="Read a partition's bytes.", **_READING),
    Operation(method="HEAD", summary="What GET would answer, without its body.", **_READING),
    Operation(
        method="POST",
        path=_PARTITION,
        tag=_TAG,
        summary="Append messages: all of the body's, or none.",
        description="`Content-Range` of the answer says which bytes of the log they became.",
        parameters=(
            _header("Content-MD5", "The digest of the body as sent, in base64 or hex."),
            _header("Content-Encoding", "gzip is understood."),
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
    ),
)
