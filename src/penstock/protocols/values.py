"""Payloads back to JSON values, by the schemas of a topic: of messages, and of replies to requests (PIP-371, PIP-43)."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET

from penstock.broker.producer import Reply
from penstock.broker.schemas import Schemas
from penstock.codec.codec import Codec
from penstock.codec.key_value import KeyValueCodec
from penstock.codec.lookup import codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo

Form = Literal["json", "base64", "text"]


class Values:
    """Messages to JSON values, each by the version it was written with, or as `reader` sees it.

    For one request: versions are looked up once. `form` base64 or text hands out payloads as they are.
    """

    def __init__(
        self, schemas: Schemas, topic: TopicName, reader: SchemaInfo | None = None, form: Form = "json"
    ) -> None:
        self._schemas = schemas
        self._topic = topic.base
        self._reader = reader
        self._form = form
        self._codecs: dict[int | None, Codec | None] = {}

    def decode(self, message: Message) -> tuple[Any, Any]:
        """Value and key; a payload without a schema is base64. Raises BAD_MESSAGE, SCHEMA_NOT_FOUND."""
        if self._form != "json":
            return self._plain(message), message.key
        codec = self._codec(message.schema_version)
        if isinstance(codec, KeyValueCodec):
            value, key = None if message.null_value else message.payload, message.key
            key, value = codec.decode_pair(key if codec.separated else None, value)
            return value, key
        if message.null_value:
            return None, message.key
        if codec is None:
            return b64encode(message.payload).decode(), message.key
        return codec.decode(message.payload), message.key

    def decode_plain(self, payloads: Sequence[bytes], version: int | None) -> Sequence[Any] | None:
        """The values of messages that are nothing but payloads, for the JSON encoder, which writes bytes as base64.

        None if they must be decoded one by one: one of them raises, or has a key.
        """
        try:
            if self._form == "text":
                return list(map(bytes.decode, payloads))
            codec = None if self._form == "base64" else self._codec(version)
            if isinstance(codec, KeyValueCodec):
                return None
            return payloads if codec is None else codec.decode_all(payloads)
        except (PenstockError, UnicodeDecodeError):
            return None

    def _codec(self, version: int | None) -> Codec | None:
        try:
            return self._codecs[version]
        except KeyError:
            found = self._codecs[version] = self._find(version)
            return found

    def _find(self, version: int | None) -> Codec | None:
        if version is None:
            return None if self._reader is None else codec_for(self._reader)
        return codec_for(self._schemas.version(self._topic, version).schema, self._reader)

    def _plain(self, message: Message) -> str | None:
        if message.null_value:
            return None
        if self._form == "base64":
            return b64encode(message.payload).decode()
        try:
            return message.payload.decode()
        except UnicodeDecodeError:
            raise PenstockError(ErrorKind.BAD_MESSAGE, "value: the payload is no UTF-8 text") from None


def check_reply(schemas: Schemas, topic: TopicName, content: bytes, version: int | None) -> None:
    """Raise SCHEMA_NOT_FOUND for a version the topic does not have, BAD_MESSAGE for content that is not of it."""
    if version is not None:
        codec_for(schemas.version(topic, version).schema).check(content)


def value_of(schemas: Schemas, topic: TopicName, reply: Reply) -> Any:
    """The reply as JSON; UNSET if it names no schema, or the schema is gone."""
    if reply.schema_version is None:
        return UNSET
    try:
        return codec_for(schemas.version(topic, reply.schema_version).schema).decode(reply.content)
    except PenstockError:
        return UNSET
