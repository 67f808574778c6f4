"""The REST proxy's API, version 2, below `/rest`, and without that prefix on a port of its own (docs/rest-proxy.md)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.model.errors import ErrorKind
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.operations import Operation, Table
from penstock.protocols.http.params import Parameter

from . import consumers, metadata
from .call import ProxyCall
from .consumer_shapes import (
    CommittedOffsets,
    CreateInstance,
    InstanceAnswer,
    Offsets,
    Partitions,
    Positions,
    Subscription,
    Topics,
)
from .fetch import fetch
from .formats import MEDIA, TAKEN, Format
from .produce import ProduceAnswer, ProduceRequest, produce
from .records import Record

Handler = Callable[[ProxyCall], Awaitable[Any]]

PREFIX: Final = "/rest"
table: Final = Table("REST proxy", PREFIX)

_TOPIC: Final = "/topics/{topic}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition}}"
_ERRORS: Final = (ErrorKind.UNAUTHENTICATED, ErrorKind.FORBIDDEN, ErrorKind.UNAVAILABLE)
_PRODUCED: Final = tuple(name for each in Format for name in each.media)
_FURTHER: Final = (
    (400, "400: the body is not JSON of the right shape, or data is not base64."),
    (404, "40401 topic, 40402 partition, 40403 consumer instance not found."),
    (406, "No type of the answer is accepted; 40601: the format is not the instance's."),
    (408, "40801: a schema may not follow those of its subject."),
    (409, "40902: the instance exists; 40903: what is asked for does not fit what it does."),
    (413, "The body or a record is too large."),
    (415, "The type of the body is not taken."),
    (
        422,
        "422: a field is missing or unknown; 42201 key schema, 42202 value schema missing; 42204 configuration; 42205 schema, or"
        " data that does not fit it; 42207 registering.",
    ),
)


def _on(method: str, *paths: str, **about: Any) -> Callable[[Handler], Handler]:
    given = {"errors": _ERRORS, "media": MEDIA, "further": _FURTHER, **about}
    return table.on(method, *paths, **given)


_on("GET", "/topics", summary="The topics.", answer=list[str])(metadata.topics)
_on("GET", _TOPIC, summary="A topic.", answer=metadata.TopicAnswer)(metadata.topic)
_on("GET", f"{_TOPIC}/partitions", summary="Its partitions.", answer=list[metadata.Partition])(
    metadata.partitions
)
_on("GET", _PARTITION, summary="A partition.", answer=metadata.Partition)(metadata.partition)
_on(
    "GET",
    f"{_PARTITION}/offsets",
    summary="Where a partition begins and ends.",
    answer=metadata.OffsetsAnswer,
)(metadata.offsets)
_on("GET", "/brokers", summary="The brokers.", answer=metadata.BrokersAnswer)(metadata.brokers)


@_on("POST", _TOPIC, summary="Produce records to a topic.", request=ProduceRequest, answer=ProduceAnswer)
async def produce_to_topic(call: ProxyCall) -> Answer:
    status, answer = await produce(call)
    return Answer(status=status, raw=to_json(answer))


@_on(
    "POST",
    _PARTITION,
    summary="Produce records to a partition.",
    request=ProduceRequest,
    answer=ProduceAnswer,
)
async def produce_to_partition(call: ProxyCall) -> Answer:
    status, answer = await produce(call, call.partition)
    return Answer(status=status, raw=to_json(answer))


_GROUP: Final = "/consumers/{group}"
_INSTANCE: Final = f"{_GROUP}/instances/{{instance}}"


def _consumer(method: str, path: str, handler: Handler, summary: str, **about: Any) -> None:
    _on(method, f"{_INSTANCE}{path}", summary=summary, request_needed=False, **about)(handler)


_on(
    "POST",
    _GROUP,
    summary="Create a consumer instance.",
    request=CreateInstance,
    request_needed=False,
    answer=InstanceAnswer,
)(consumers.create)
_consumer("DELETE", "", consumers.delete, "Delete an instance.", status=204)
_consumer(
    "POST",
    "/subscription",
    consumers.subscribe,
    "Subscribe to topics.",
    request=Subscription,
    status=204,
)
_consumer("GET", "/subscription", consumers.subscription, "The topics.", answer=Topics)
_consumer("DELETE", "/subscription", consumers.unsubscribe, "Subscribe to nothing.", status=204)
_consumer("POST", "/assignments", consumers.assign, "Assign partitions.", request=Partitions, status=204)
_consumer("GET", "/assignments", consumers.assignments, "The partitions.", answer=Partitions)
_consumer("POST", "/positions", consumers.seek, "Go on at positions.", request=Positions, status=204)
_consumer(
    "POST",
    "/positions/beginning",
    consumers.seek_to_beginning,
    "Go on at the first records.",
    request=Partitions,
    status=204,
)
_consumer(
    "POST",
    "/positions/end",
    consumers.seek_to_end,
    "Go on behind the last records.",
    request=Partitions,
    status=204,
)
_consumer("POST", "/offsets", consumers.commit, "Commit.", request=Offsets, answer=list[str])
_consumer(
    "GET",
    "/offsets",
    consumers.committed,
    "What the group has committed.",
    request=Partitions,
    answer=CommittedOffsets,
)
_consumer(
    "GET",
    "/records",
    fetch,
    "Fetch records.",
    parameters=(
        Parameter("timeout", "How long to wait for the first record, ms.", {"type": "integer"}),
        Parameter(
            "max_bytes", "Of keys, values and headers; one record comes in any case.", {"type": "integer"}
        ),
    ),
    answer=list[Record],
    media=(*_PRODUCED, *MEDIA),
)
# Not of OpenAPI: other processes ask.
_INTERNAL: Final = _on("GET", _INSTANCE, summary="Whether this process has an instance.")(consumers.known)


async def _nothing(call: ProxyCall) -> dict[str, Any]:
    """That a proxy is there."""
    return {}


for _method in ("GET", "POST"):
    _on(_method, "", "/", summary="That a proxy is here.", answer=dict[str, Any])(_nothing)

OPERATIONS: Final[tuple[Operation, ...]] = tuple(
    operation
    for operation in table
    if operation.handler is not _INTERNAL
    and not (operation.handler is _nothing and (operation.method == "POST" or operation.path.endswith("/")))
)

__all__ = ("OPERATIONS", "PREFIX", "TAKEN", "table")
