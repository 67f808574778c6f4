"""The bodies of produce requests and answers of PIP-64, and how the requests of either dialect are read (docs/rest.md)."""

from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_json import JSON_NAMES
from penstock.protocols.declarations import Declaration, Long, SchemaText
from penstock.protocols.http.answers import BodyError
from penstock.protocols.http.decoding import DECODE_ERRORS, reason

ANSWERS_MAX: Final = 64  # to batches of as many sizes are remembered, 100 bytes a message: some 6 MiB

Encoding = Literal["json", "base64"]
E = TypeVar("E")
M = TypeVar("M")


class PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    """The commonest message: a text and nothing else."""

    value: str


class PlainRequest(Struct, forbid_unknown_fields=True, gc=False):
    """The commonest request: texts, and perhaps a producer's name."""

    messages: list[PlainMessage]
    producer_name: str | None = None


class ValueMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A value and nothing else."""

    value: Any


class ValueRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Values of one schema, and perhaps a producer's name."""

    messages: list[ValueMessage]
    schema_type: str | None = None
    schema_version: Long | None = None
    value_schema: SchemaText | None = None
    producer_name: str | None = None


class ProduceMessage(
    Declaration,
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
    rename=JSON_NAMES,
):
    """One message to publish. Its own schema fields count before the request's (PIP-43).

    With `encoding` base64 the value, and a key of a key/value schema, are encoded already and only checked. With
    `keyIsBase64` the key is bytes, as messages are read.
    """

    value: Any | UnsetType = UNSET
    key: Any = None
    key_is_base64: bool = False
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    properties: dict[str, str] | None = None
    event_time: Long | None = None
    sequence_id: Long | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool = False
    deliver_at: Long | None = None
    deliver_after_ms: Long | None = None
    encoding: Encoding | None = None


class Envelope(Declaration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a produce request says once for all its messages.

    Publishing twice with the same `producer_name` and `sequenceId` stores once if deduplication is on.
    """

    encoding: Encoding | None = None
    producer_name: str | None = None


class ProduceRequest(Envelope, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A produce request."""

    messages: list[ProduceMessage]


class RawProduceRequest(Envelope, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same, its messages not looked at: so that a bad one fails alone."""

    messages: list[msgspec.Raw]


class PublishedMessage(Struct, rename=JSON_NAMES):
    """What became of one message: an id, or an error (code 1: do not retry; 2: a retry may help)."""

    message_id: str | None
    partition: int | None
    error_code: int | None
    error: str | None
    schema_version: int | UnsetType | None = UNSET


class ProduceAnswer(Struct, rename={"message_ids": "messageIds"}):
    """One result a message, in their order; `schema_version` is null without a schema, and if they differ."""

    schema_version: int | None
    message_ids: list[PublishedMessage]


_KINDS: Final = (
    ("key_schema", ErrorKind.BAD_KEY_SCHEMA),
    ("keySchema", ErrorKind.BAD_KEY_SCHEMA),
    ("value_schema", ErrorKind.BAD_VALUE_SCHEMA),
    ("valueSchema", ErrorKind.BAD_VALUE_SCHEMA),
    ("schema_", ErrorKind.BAD_PARAMETER),
    ("schemaVersion", ErrorKind.BAD_PARAMETER),
    ("key_value_encoding", ErrorKind.BAD_PARAMETER),
    ("encoding", ErrorKind.BAD_PARAMETER),
    ("producer", ErrorKind.BAD_PARAMETER),
)


def bad_request(error: Exception) -> PenstockError:
    """Why a produce request could not be decoded, by the field that is wrong."""
    text = reason(error)
    if isinstance(error, msgspec.ValidationError):
        _, found, path = text.rpartition("at `$.")
        if found:
            for start, kind in _KINDS:
                if path.startswith(start):
                    return BodyError(kind, text)
        elif "unknown field" in text:
            return BodyError(ErrorKind.BAD_PARAMETER, text)
    return BodyError(ErrorKind.BAD_JSON, text)


class Bodies(Generic[E, M]):
    """How the produce requests of a dialect are read: `whole` at once, and if that fails `raw`, whose messages are
    then read one by one, so that a bad one fails alone. Both are structs with the envelope `E` and `messages`."""

    def __init__(self, whole: type[Struct], raw: type[Struct], message: type[M]) -> None:
        self._whole: msgspec.json.Decoder[Any] = msgspec.json.Decoder(whole)
        self._raw: msgspec.json.Decoder[Any] = msgspec.json.Decoder(raw)
        self._message = msgspec.json.Decoder(message)

    def read(self, body: bytes, messages_max: int) -> tuple[E, list[M | PenstockError]]:
        """A body's envelope and messages; raises the error of the request as a whole: BAD_MESSAGE for no
        messages, TOO_LARGE for too many."""
        try:
            request = self._whole.decode(body)
            messages = request.messages
        except DECODE_ERRORS:  # the envelope is bad, or a message is
            try:
                request = self._raw.decode(body)
            except DECODE_ERRORS as error:
                raise bad_request(error) from None
            messages = [self._one(raw) for raw in request.messages]
        count = len(messages)
        if not count:
            raise BodyError(ErrorKind.BAD_MESSAGE, "the request holds no messages")
        if count > messages_max:
            raise PenstockError(ErrorKind.TOO_LARGE, f"{count} messages; the most is {messages_max}")
        return request, messages

    def _one(self, raw: msgspec.Raw) -> M | PenstockError:
        try:
            return self._message.decode(raw)
        except DECODE_ERRORS as error:
            return BodyError(ErrorKind.BAD_MESSAGE, reason(error))
