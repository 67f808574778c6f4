"""The REST endpoint's operations, for the interface's description."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.model.errors import ErrorKind
from penstock.protocols.http.openapi import ALWAYS, Operation, Parameter

from .answer_shapes import FetchAnswer, OffsetsAnswer, ProduceAnswer, ReadAnswer, ReplyAnswer, ShippedAnswer
from .consume_shapes import ConsumerAnswer, ConsumerRequest, CursorAnswer, CursorRequest, CursorResult
from .logs_shapes import (
    ManyOffsets,
    MarksAnswer,
    MarksRequest,
    OffsetsRequest,
    SizesAnswer,
    SizesRequest,
)
from .produce_shapes import ProduceRequest, ShippedRequest
from .streams import ENTRIES, EVENTS, LINES

_TOPIC: Final = "/topics/{tenant}/{namespace}/{topic}"
_SHIPPED: Final = "/topics/{domain}/{tenant}/{namespace}/{topic}"
_COUNT: Final = {"type": "integer", "minimum": 1}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_FLAG: Final = {"type": "boolean"}

_ALWAYS: Final = (*ALWAYS, ErrorKind.INVALID_NAME)
_PRODUCING: Final = (
    *_ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.INCOMPATIBLE_SCHEMA,
    ErrorKind.PRODUCER_FENCED,
    ErrorKind.EXCLUSIVE_PRODUCER,
    ErrorKind.TOO_LARGE,
    ErrorKind.BAD_MEDIA_TYPE,
    ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
    ErrorKind.NEEDS_VALUE_SCHEMA,
    ErrorKind.BAD_KEY_SCHEMA,
    ErrorKind.BAD_VALUE_SCHEMA,
    ErrorKind.BAD_MESSAGE,
    ErrorKind.STORAGE_FULL,
    ErrorKind.STORAGE_FAILED,
    ErrorKind.TOPIC_TERMINATED,
)
_READING: Final = (
    *_ALWAYS,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.NOT_ACCEPTABLE,
)
_CONSUMING: Final = (*_ALWAYS, ErrorKind.TOPIC_NOT_FOUND, ErrorKind.SUBSCRIPTION_NOT_FOUND)

_TIMEOUT: Final = Parameter("timeout", "How long to wait for the first message, in ms.", _NUMBER)
_BOUNDS: Final = (
    Parameter("max_messages", "At most so many messages.", _COUNT),
    Parameter("max_bytes", "At most so many bytes of keys and values, but at least one message.", _COUNT),
    Parameter(
        "encoding",
        "How values are shown: by their schemas, or their payloads as base64 or text.",
        {"type": "string", "enum": ["json", "base64", "text"]},
    ),
)
_PLACES: Final = (
    Parameter("message_id", "Start after this one; also `earliest` and `latest`."),
    Parameter("offset", "Start at this offset.", _NUMBER),
    Parameter(
        "publish_time", "Start with what was published at or after this time, ms since the epoch.", _NUMBER
    ),
    Parameter("end_offset", "Stop before this offset.", _NUMBER),
)
_READ: Final = (
    *_PLACES,
    _TIMEOUT,
    *_BOUNDS,
    Parameter("include_schema", "Name the schemas that occur.", _FLAG),
    Parameter("follow", f"With `{LINES}`: go on when the end is reached.", _FLAG),
    Parameter("Last-Event-ID", f"With `{EVENTS}`: start after this one.", where="header"),
)


def _both(method: str, path: str, tag: str, summary: str, **more: Any) -> list[Operation]:
    """An operation that is the same under either dialect's path."""
    return [
        Operation(method=method, path=base + path, tag=tag, summary=summary, **more)
        for base in (_TOPIC, _SHIPPED)
    ]


def _produce(path: str, summary: str) -> list[Operation]:
    return [
        Operation(
            method="POST",
            path=_TOPIC + path,
            tag="produce",
            summary=summary,
            request=ProduceRequest,
            answer=ProduceAnswer,
            errors=_PRODUCING,
        ),
        Operation(
            method="POST",
            path=_SHIPPED + path,
            tag="produce",
            summary=f"{summary[:-1]}, in the dialect that Pulsar shipped.",
            request=ShippedRequest,
            answer=ShippedAnswer,
            errors=_PRODUCING,
        ),
    ]


_SUBSCRIPTION: Final = "/subscription/{subscription}"

OPERATIONS: Final[Sequence[Operation]] = [
    *_produce("", "Publish messages."),
    *_produce("/partitions/{partition}", "Publish messages to one partition."),
    *_both(
        "POST",
        "/request",
        "request",
        "Publish one message and wait for its reply (PIP-371).",
        description="The message alone, or one in `messages`. In the dialect that Pulsar shipped it may have a "
        "`payload`, as in publishing there.",
        parameters=(Parameter("timeout", "How long to wait, in ms.", _COUNT),),
        request=ProduceRequest,
        answer=ReplyAnswer,
        errors=(*_PRODUCING, ErrorKind.REQUEST_TIMEOUT),
    ),
    *_both(
        "GET",
        "/partitions/{partition}/messages",
        "read",
        "Read messages of a partition.",
        description=f"As JSON; as a stream of lines (`{LINES}`), of server-sent events (`{EVENTS}`), or of raw "
        f"entries (`{ENTRIES}`: offset u64, count u32, entry id u64, length u32, entry; big endian).",
        parameters=_READ,
        answer=ReadAnswer,
        answers=(LINES, EVENTS, ENTRIES),
        errors=_READING,
    ),
    *_both(
        "GET",
        "/partitions/{partition}/offsets",
        "read",
        "Where a partition begins and ends.",
        parameters=(Parameter("publish_time", "Also the first offset published since, ms.", _NUMBER),),
        answer=OffsetsAnswer,
        errors=_READING,
    ),
    Operation(
        method="POST",
        path="/topics/offsets",
        tag="read",
        summary="Where the partitions of many topics begin and end.",
        description="With what an answer before said it had `seen`, waits until there is something new.",
        request=OffsetsRequest,
        answer=ManyOffsets,
        errors=(*_ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    ),
    Operation(
        method="POST",
        path="/topics/sizes",
        tag="read",
        summary="How many bytes there are in ranges of offsets.",
        request=SizesRequest,
        answer=SizesAnswer,
        errors=(*_READING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    ),
    Operation(
        method="POST",
        path="/topics/cursors",
        tag="consume",
        summary="Have a durable subscription follow a reader, by offsets.",
        request=MarksRequest,
        answer=MarksAnswer,
        errors=(*_ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    ),
    *_both(
        "POST",
        _SUBSCRIPTION,
        "consume",
        "Create a consumer instance.",
        request=ConsumerRequest,
        request_needed=False,
        answer=ConsumerAnswer,
        errors=(
            *_ALWAYS,
            ErrorKind.TOPIC_NOT_FOUND,
            ErrorKind.CONSUMER_BUSY,
            ErrorKind.SUBSCRIPTION_BUSY,
            ErrorKind.INCOMPATIBLE_SCHEMA,
            ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
            ErrorKind.NEEDS_VALUE_SCHEMA,
            ErrorKind.BAD_KEY_SCHEMA,
            ErrorKind.BAD_VALUE_SCHEMA,
            ErrorKind.BAD_JSON,
            ErrorKind.TOO_MANY_REQUESTS,
        ),
    ),
    *(
        operation
        for word in ("consumer", "consumers")
        for operation in (
            *_both(
                "GET",
                f"{_SUBSCRIPTION}/{word}/{{consumer_id}}/messages",
                "consume",
                "Fetch messages.",
                parameters=(_TIMEOUT, *_BOUNDS),
                answer=FetchAnswer,
                errors=(*_CONSUMING, ErrorKind.CONSUMER_NOT_FOUND),
            ),
            *_both(
                "DELETE",
                f"{_SUBSCRIPTION}/{word}/{{consumer_id}}",
                "consume",
                "Remove a consumer instance; what it had goes to the others.",
                status=204,
                errors=(*_CONSUMING, ErrorKind.CONSUMER_NOT_FOUND),
            ),
        )
    ),
    *_both(
        "GET",
        f"{_SUBSCRIPTION}/cursor",
        "consume",
        "A subscription's cursor.",
        answer=CursorAnswer,
        errors=_CONSUMING,
    ),
    *_both(
        "POST",
        f"{_SUBSCRIPTION}/cursor",
        "consume",
        "Acknowledge messages, give them back, or seek.",
        request=CursorRequest,
        answer=CursorResult,
        errors=(*_CONSUMING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    ),
]
