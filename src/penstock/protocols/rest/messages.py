"""Messages as PIP-64 shows them to readers and consumers."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.broker.schemas import Schemas
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, request_timeout_ms
from penstock.model.message_json import JSON_NAMES
from penstock.model.names import TopicName
from penstock.model.schema import SchemaVersion
from penstock.protocols.http.params import Params
from penstock.protocols.values import Form, Values

from .operations import error_code

DEFAULT_MESSAGES: Final = 1000  # an answer of a size that people and tools still handle at once

# What the JSON encoder raises for a value that JSON cannot hold.
ENCODE_ERRORS: Final = (OverflowError, UnicodeError, TypeError, ValueError, RecursionError)

_encoder: Final = msgspec.json.Encoder()

_FORMS: Final[tuple[Form, ...]] = ("json", "base64", "text")


def form_of(params: Params) -> Form:
    """The parameter `encoding`; raises BAD_PARAMETER."""
    return next(form for form in _FORMS if form == params.choice("encoding"))


class ReadMessage(
    msgspec.Struct,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    rename=JSON_NAMES,
):
    """A message as read; times are ms since the epoch. `requestTimeoutMillis` and `requestDeadline` show that
    it is a request, whose reply is awaited until then (PIP-371). `offset` is null if the log does not number messages. One that cannot be decoded has the value null, and says why in `error`."""

    message_id: str
    partition: int
    offset: int | None
    key: Any
    value: Any
    properties: dict[str, str]
    publish_time: int
    event_time: int | None
    sequence_id: int
    producer_name: str
    schema_version: int | None
    deliver_at: int | UnsetType = UNSET
    key_is_base64: bool | UnsetType = UNSET
    replication_clusters: list[str] | UnsetType = UNSET
    redelivery_count: int | UnsetType = UNSET
    request_timeout_ms: int | UnsetType = UNSET
    request_deadline: int | UnsetType = UNSET
    error_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    value_size: int | UnsetType = UNSET  # of one that was cut, bytes of JSON


class SchemaShape(msgspec.Struct):
    """A schema that occurs among the messages; `data` is its definition in base64."""

    type: str
    version: int
    data: bytes
    properties: dict[str, str]


def show(
    values: Values,
    partition: int,
    id: str,
    message: Message,
    redeliveries: int | None,
    *,
    numbered: bool = True,
) -> ReadMessage:
    """A message as it is shown, decoded as far as it can be; `numbered`: with its offset."""
    shown = ReadMessage(
        message_id=id,
        partition=partition,
        offset=message.offset if numbered else None,
        key=message.key,
        value=None,
        properties=message.properties,
        publish_time=message.publish_time,
        event_time=message.event_time or None,
        sequence_id=message.sequence_id,
        producer_name=message.producer_name,
        schema_version=message.schema_version,
    )
    try:
        shown.value, shown.key = values.decode(message)
    except PenstockError as error:
        shown.error_code, shown.error = error_code(error), error.message
    if message.deliver_at:
        shown.deliver_at = message.deliver_at
    if message.key_is_base64 and shown.key is message.key:
        shown.key_is_base64 = True
    if message.replicate_to:
        shown.replication_clusters = message.replicate_to
    if redeliveries is not None:
        shown.redelivery_count = redeliveries
    if message.properties:
        timeout_ms = request_timeout_ms(message.properties)
        if timeout_ms is not None:
            shown.request_timeout_ms = timeout_ms
            shown.request_deadline = message.publish_time + timeout_ms
    return shown


def show_closed(
    partition: int,
    id: str,
    entry: Entry,
    place: int,
    redeliveries: int | None,
    error: PenstockError,
    *,
    numbered: bool = True,
) -> ReadMessage:
    """A message of an entry that cannot be opened: it is named, so that it can be acknowledged or passed over."""
    return ReadMessage(
        message_id=id,
        partition=partition,
        offset=entry.offset + place if numbered else None,
        key=None,
        value=None,
        properties={},
        publish_time=entry.publish_time,
        event_time=None,
        sequence_id=-1,
        producer_name="",
        schema_version=None,
        redelivery_count=UNSET if redeliveries is None else redeliveries,
        error_code=error_code(error),
        error=error.message,
    )


def encode_messages(shown: Sequence[ReadMessage]) -> list[str]:
    """JSON of each; a value that JSON cannot hold becomes an error in its slot."""
    try:
        return json_of_each(shown)
    except ENCODE_ERRORS:
        return [_encode(one) for one in shown]


def json_of_each(values: Sequence[Any]) -> list[str]:
    """JSON of each value; raises one of ENCODE_ERRORS."""
    lines = _encoder.encode_lines(values).decode().split("\n")
    lines.pop()
    return lines


def _encode(shown: ReadMessage) -> str:
    try:
        return _encoder.encode(shown).decode()
    except ENCODE_ERRORS:
        shown.key, shown.value = None, None
        shown.error_code, shown.error = 1, "value: JSON cannot hold it"
        return _encoder.encode(shown).decode()


def schemas_of(schemas: Schemas, topic: TopicName, versions: set[int | None]) -> list[SchemaShape]:
    """The schemas of these versions; one that was deleted for good is left out."""
    shapes: list[SchemaShape] = []
    for number in sorted(versions - {None}, key=lambda n: n or 0):
        try:
            known: SchemaVersion = schemas.version(topic, number or 0)
        except PenstockError:
            continue
        schema = known.schema
        shapes.append(SchemaShape(schema.type.name, known.version, schema.data, schema.properties))
    return shapes
