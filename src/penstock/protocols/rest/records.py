"""POST of how a topic's messages are stored as records of the cluster, for readers that fetch them from its brokers."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from penstock.broker.capability import offered
from penstock.broker.records import SchemaId
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table

from .operations import READING, Target
from .services import Services

IDS_MAX: Final = 1000  # of one request; the registry may be asked for each

Id = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class RecordsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which topic, and the ids of a schema registry in front of values and keys whose meaning is wanted."""

    topic: str
    values: Annotated[list[Id], Meta(max_length=IDS_MAX)] = []
    keys: Annotated[list[Id], Meta(max_length=IDS_MAX)] = []


class IdMeaning(Struct, kw_only=True):
    """What an id means: a version of the topic's schema (of the keys' schema in `keys`), null: the bytes are content.
    `indexes` are Protobuf's message indexes, in base64, by message. Valid for `for_ms`, 0: for good."""

    id: int
    version: int | None
    indexes: list[bytes] | None
    for_ms: int


class RecordsAnswer(Struct, kw_only=True):
    """`topic` is the name in the cluster. With a `registry`, values may begin with a schema's id; if `keyed`, keys, too. `own`: it is the server's own, and versions in headers are the
    topic's."""

    topic: str
    registry: bool
    own: bool = False
    keyed: bool
    values: list[IdMeaning]
    keys: list[IdMeaning]


operations: Final = Table("read")
_request: Final = msgspec.json.Decoder(RecordsRequest)


@operations.on(
    "POST",
    "/topics/records",
    summary="How the messages of a topic are stored as records of the cluster.",
    description="Before Kafka, for readers that fetch the records from its brokers under their own credentials.",
    request=RecordsRequest,
    answer=RecordsAnswer,
    errors=(*READING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE, ErrorKind.NOT_SUPPORTED),
)
async def records(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    wanted = await exchange.json(_request, rest.limits.max_request_bytes)
    name = TopicName.parse(wanted.topic)
    await rest.broker.topics.learn(name)
    caller.may_consume(name)
    formats = offered(rest.broker.record_formats, "records that others can read")
    await rest.broker.topics.all_of(name, create=False)  # raises TOPIC_NOT_FOUND
    found = await formats.of(name, wanted.values, wanted.keys)
    answer = RecordsAnswer(
        topic=found.topic,
        registry=found.registry,
        own=found.own,
        keyed=found.keyed,
        values=_meanings(found.values),
        keys=_meanings(found.keys),
    )
    await exchange.answer(to_json(answer))


def _meanings(found: Sequence[SchemaId]) -> list[IdMeaning]:
    return [
        IdMeaning(
            id=one.id,
            version=one.version,
            indexes=None if one.indexes is None else list(one.indexes),
            for_ms=one.for_ms,
        )
        for one in found
    ]
