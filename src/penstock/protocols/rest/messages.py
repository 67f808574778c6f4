"""Messages as PIP-64 shows them to readers and consumers, and entries decoded to them."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.broker.entry_format import EntryFormat
from penstock.broker.log import Log
from penstock.broker.schemas import Schemas
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, request_timeout_ms
from penstock.model.names import TopicName
from penstock.model.schema import SchemaVersion
from penstock.protocols.http.params import Params
from penstock.protocols.values import Form, Values

from .batch_ids import id_texts
from .operations import error_code

DEFAULT_MESSAGES: Final = 1000  # an answer of a size that people and tools still handle at once

DECODED_BYTES_MAX: Final = 8 << 20  # of payloads; a batch is 1 MiB at most when it was published here
MESSAGE_BYTES: Final = 500  # about what a decoded message weighs beside its payload

_FORMS: Final[tuple[Form, ...]] = ("json", "base64", "text")


def form_of(params: Params) -> Form:
    """The parameter `encoding`; raises BAD_PARAMETER."""
    return next(form for form in _FORMS if form == params.choice("encoding"))


class ReadMessage(
    msgspec.Struct,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    rename={
        "message_id": "messageId",
        "publish_time": "publishTime",
        "event_time": "eventTime",
        "deliver_at": "deliverAt",
        "sequence_id": "sequenceId",
        "producer_name": "producerName",
        "key_is_base64": "keyIsBase64",
        "replication_clusters": "replicationClusters",
        "redelivery_count": "redeliveryCount",
        "request_timeout_ms": "requestTimeoutMillis",
        "request_deadline": "requestDeadline",
    },
):
    """A message as read; times are ms since the epoch. `requestTimeoutMillis` and `requestDeadline` show that
    it is a request, whose reply is awaited until then (PIP-371). One that cannot be decoded has the value null, and says why in `error`."""

    message_id: str
    partition: int
    offset: int
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


class SchemaShape(msgspec.Struct):
    """A schema that occurs among the messages; `data` is its definition in base64."""

    type: str
    version: int
    data: bytes
    properties: dict[str, str]


class Decoding:
    """Entries to messages, which must not be changed: the last few batches are cached, as the consumers of a subscription
    share them, and so do pages."""

    def __init__(self, encoder: EntryFormat) -> None:
        self._encoder = encoder
        self._recent: OrderedDict[tuple[int, int], tuple[list[Message], int]] = OrderedDict()
        self._bytes = 0

    def decode(self, entry: Entry) -> list[Message]:
        """Every message of an entry; raises CHECKSUM, BAD_ENCODING."""
        if entry.count == 1:
            return self._encoder.decode(entry)
        key = entry.ledger, entry.entry_id  # never used again for another entry
        known = self._recent.get(key)
        if known is not None:
            self._recent.move_to_end(key)
            return known[0]
        messages = self._encoder.decode(entry)
        size = sum(len(message.payload) for message in messages) + MESSAGE_BYTES * len(messages)
        self._recent[key] = messages, size
        self._bytes += size
        while self._bytes > DECODED_BYTES_MAX:
            _, (_, evicted) = self._recent.popitem(last=False)
            self._bytes -= evicted
        return messages


class Found(msgspec.Struct, gc=False):
    """A message on its way out: as shown, and how many bytes its key and value are."""

    shown: ReadMessage
    size: int


def messages_of(
    decoding: Decoding,
    values: Values,
    topic: Log,
    entry: Entry,
    mask: int = -1,
    redeliveries: int | None = None,
) -> Iterator[Found]:
    """The messages of an entry whose bits are set in `mask`, each decoded as far as it can be."""
    try:
        messages = decoding.decode(entry)
    except PenstockError as error:
        yield from _closed(topic, entry, mask, redeliveries, error)
        return
    all_of_it = mask < 0 or 4 * mask.bit_count() >= entry.count
    name = topic.name
    ids = id_texts(topic.ledger, entry.entry_id, name.partition, entry.count) if all_of_it else ()
    for place in range(len(messages)) if mask < 0 else bits_of(mask):
        message = messages[place]
        if not message.compacted_out:
            index = message.index
            text = ids[index] if 0 <= index < len(ids) else str(topic.id_of(entry, index))
            yield _show(values, topic, text, message, redeliveries)


def _show(values: Values, topic: Log, id: str, message: Message, redeliveries: int | None) -> Found:
    shown = ReadMessage(
        message_id=id,
        partition=topic.partition,
        offset=message.offset,
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
    return Found(shown, len(message.payload) + (len(message.key) if message.key else 0))


def _closed(
    topic: Log, entry: Entry, mask: int, redeliveries: int | None, error: PenstockError
) -> Iterator[Found]:
    """An entry that cannot be opened: its messages are named, so that they can be acknowledged or passed over."""
    for place in range(entry.count):
        if mask >> place & 1:
            found = topic.id_of(entry, place if entry.count > 1 else -1)
            shown = ReadMessage(
                message_id=str(found),
                partition=topic.partition,
                offset=entry.offset + place,
                key=None,
                value=None,
                properties={},
                publish_time=entry.publish_time,
                event_time=None,
                sequence_id=-1,
                producer_name="",
                schema_version=None,
                error_code=error_code(error),
                error=error.message,
            )
            if redeliveries is not None:
                shown.redelivery_count = redeliveries
            yield Found(shown, len(entry.data) // entry.count)


def encode_message(shown: ReadMessage) -> bytes:
    """JSON of one message; a value that JSON cannot hold becomes an error in its slot."""
    try:
        return msgspec.json.encode(shown)
    except (OverflowError, UnicodeError, TypeError, ValueError, RecursionError):
        shown.key, shown.value = None, None
        shown.error_code, shown.error = 1, "value: JSON cannot hold it"
        return msgspec.json.encode(shown)


def encode_messages(found: Sequence[Found]) -> bytes:
    """A JSON array of messages."""
    try:
        return msgspec.json.encode([one.shown for one in found])
    except (OverflowError, UnicodeError, TypeError, ValueError, RecursionError):
        return b"[" + b",".join(encode_message(one.shown) for one in found) + b"]"


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
