"""JSON values to payloads by the schemas of a topic: shared by the JSON endpoints (PIP-64, PIP-43)."""

from base64 import b64encode
from binascii import a2b_base64
from typing import Any, Final

from penstock.broker.schemas import Schemas
from penstock.codec.codec import Codec
from penstock.codec.definition import avro_type
from penstock.codec.key_value import KeyValueCodec, join
from penstock.codec.lookup import codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.schema import ANY_JSON, STRING_SCHEMA, SchemaInfo, SchemaType, SchemaVersion

from .declarations import Declaration, declared

TOPIC_SCHEMAS_MAX: Final = (
    256  # schemas that one topic's publishers are known to use; more are looked up again
)


class BoundSchema:
    """A schema as the messages of a topic use it: its version (None without one) and its codec.

    `fresh` is a schema that is still to be registered; its messages have no version before that.
    """

    __slots__ = ("codec", "fresh", "pair", "version")

    def __init__(self, version: int | None, codec: Codec | None, fresh: SchemaInfo | None = None) -> None:
        self.version = version
        self.codec = codec
        self.fresh = fresh
        self.pair = codec if isinstance(codec, KeyValueCodec) else None

    def encode(self, value: Any, key: Any = None) -> OutMessage:
        """A message of a JSON value; None is a null message. Raises BAD_MESSAGE."""
        if self.pair is not None:
            stored, payload = self.pair.encode_pair(key, value)
            return self._paired(stored, payload, null=value is None)
        text = _text_key(key)
        if value is None:
            return OutMessage(payload=b"", key=text, null_value=True, schema_version=self.version)
        payload = _from_base64(value, "value") if self.codec is None else self.codec.encode(value)
        return OutMessage(payload=payload, key=text, schema_version=self.version)

    def encode_base64(self, value: Any, key: Any = None) -> OutMessage:
        """As `encode` of a value (and a pair's key) that are encoded already, in base64 (AUTO_PRODUCE_BYTES)."""
        payload = None if value is None else _from_base64(value, "value")
        if self.pair is None:
            return self.wrap(payload or b"", key=_text_key(key), null=payload is None)
        raw = None if key is None else _from_base64(key, "key")
        if raw is not None:
            self.pair.key.check(raw)
        if payload is not None:
            self.pair.value.check(payload)
        if self.pair.separated:
            stored = None if raw is None else b64encode(raw).decode()
            return self._paired(stored, payload, null=payload is None)
        return self._paired(None, join(raw, payload), null=payload is None)

    def wrap(
        self, payload: bytes, *, key: str | None = None, key_is_base64: bool = False, null: bool = False
    ) -> OutMessage:
        """A message of a whole payload, checked against the schema. A separated pair's key is base64."""
        pair = self.pair
        if pair is not None and pair.separated:
            if key is not None:
                pair.key.check(_from_base64(key, "key"))
                key_is_base64 = True
            if not null:
                pair.value.check(payload)
        elif self.codec is not None and not null:
            self.codec.check(payload)
        return OutMessage(
            payload=payload,
            key=key,
            key_is_base64=key_is_base64,
            null_value=null,
            schema_version=self.version,
        )

    def take_bytes_key(self, message: OutMessage, *, encoded: bool) -> None:
        """The key that a message was encoded with is bytes, given in base64. Raises BAD_MESSAGE, also for the key of a pair
        that is not `encoded` already: that is a value of the key's schema."""
        if self.pair is not None:
            if not encoded:
                raise PenstockError(
                    ErrorKind.BAD_MESSAGE,
                    "keyIsBase64: the key has a schema; give it as JSON, or with encoding base64 as value and key are",
                )
        elif message.key is not None:
            # Written in one way, as the text chooses the partition.
            message.key = b64encode(_from_base64(message.key, "key")).decode()
            message.key_is_base64 = True

    def _paired(self, stored: str | None, payload: bytes | None, *, null: bool) -> OutMessage:
        return OutMessage(
            payload=payload or b"",
            key=stored,
            key_is_base64=stored is not None,
            # the payload of an inline pair is never empty: it says itself that the value is null
            null_value=null and not payload,
            schema_version=self.version,
        )


class TopicSchemas:
    """The schemas that are published to one topic: from what requests say to versions, registered when new.

    Results are remembered until the topic's newest schema changes: a version may go with a deletion.
    """

    def __init__(self, schemas: Schemas, topic: TopicName) -> None:
        self._schemas = schemas
        self._topic = topic.base
        self.newest: SchemaVersion | None = None  # as of the last look
        self.changes = -1  # of all topics' schemas, at the last look
        self._known: dict[Any, BoundSchema] = {}
        self.string: BoundSchema | None = None  # of texts without a schema, once one was published

    async def scheme(self, declaration: Declaration, *, register: bool = True) -> BoundSchema:
        """What a declaration means here; a schema that is new is registered when it may follow.

        Without `register` it is left `fresh`. Raises what `declared` does, INCOMPATIBLE_SCHEMA, and
        BAD_VALUE_SCHEMA for an unknown version.
        """
        if declaration.schema_version is not None:
            return self._of_version(declaration.schema_version)
        schema = declared(declaration)
        found = self.unnamed("") if schema is None else self.of(schema)
        return await self.register(found) if register else found

    def of(self, schema: SchemaInfo) -> BoundSchema:
        """The scheme of a schema, fresh when it is new and may follow; raises INCOMPATIBLE_SCHEMA,
        BAD_KEY_SCHEMA, BAD_VALUE_SCHEMA."""
        newest = self._refresh()
        free = schema.type is SchemaType.JSON and avro_type(schema) is None
        if free and newest is not None and newest.schema.type is SchemaType.JSON:
            return self._of_version(newest.version)  # the topic says what its JSON looks like
        key = _key(schema)
        known = self._known.get(key)
        if known is not None:
            return known
        if schema.type in (SchemaType.NONE, SchemaType.BYTES):
            self._schemas.check_next(self._topic, None)
            return BoundSchema(None, None)
        self._schemas.check(self._topic, schema)
        version = self._schemas.find(self._topic, schema)
        if version is not None:
            made = BoundSchema(version, codec_for(schema))
        else:
            self._schemas.check_next(self._topic, schema)
            made = BoundSchema(None, codec_for(schema), schema)
        return self._remember(key, made)

    async def register(self, scheme: BoundSchema) -> BoundSchema:
        """Give a fresh scheme its version; raises INCOMPATIBLE_SCHEMA."""
        schema = scheme.fresh
        if schema is not None:
            of_texts = scheme is self.string
            scheme.version = await self._schemas.get_or_create(self._topic, schema)
            scheme.fresh = None
            self._refresh()
            self._remember(_key(schema), scheme)
            if of_texts and self.newest is not None and self.newest.version == scheme.version:
                self.string = scheme
        return scheme

    def unnamed(self, value: Any, first: BoundSchema | None = None) -> BoundSchema:
        """The scheme of a value without a schema: JSON if the topic's schema is; if it has none, a text is STRING
        and anything else JSON of any shape (docs/decisions/0080).

        `first` is the schema that the same request registers: it counts as the topic's if that has none.
        Raises NEEDS_VALUE_SCHEMA, NEEDS_KEY_VALUE_SCHEMA.
        """
        newest = self._refresh()
        if value is None:
            self._schemas.check_next(self._topic, None)
            return BoundSchema(None, None)
        if newest is not None:
            kind = newest.schema.type
            if kind is SchemaType.JSON:
                return self._of_version(newest.version)
            if kind is SchemaType.STRING and isinstance(value, str):
                return self._of_text(newest.schema)
        elif first is not None and first.fresh is not None:
            kind = first.fresh.type
            if kind is SchemaType.JSON or (kind is SchemaType.STRING and isinstance(value, str)):
                return first
        else:
            return self._of_text(STRING_SCHEMA) if isinstance(value, str) else self.of(ANY_JSON)
        if kind is SchemaType.STRING:
            raise PenstockError(
                ErrorKind.NEEDS_VALUE_SCHEMA,
                "the topic's schema is STRING: a value that is no text needs a topic of its own",
            )
        if kind is SchemaType.KEY_VALUE:
            raise PenstockError(
                ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
                "the topic's schema is KEY_VALUE: give schema_version, or key_schema and value_schema",
            )
        raise PenstockError(
            ErrorKind.NEEDS_VALUE_SCHEMA,
            f"the topic's schema is {kind.name}: give schema_version or value_schema",
        )

    def _of_text(self, schema: SchemaInfo) -> BoundSchema:
        if self.string is None:
            self.string = self.of(schema)
        return self.string

    @property
    def of_json(self) -> bool:
        """Whether any value without a schema has the topic's, which is JSON."""
        newest = self._refresh()
        return newest is not None and newest.schema.type is SchemaType.JSON

    def check_unversioned(self) -> None:
        """Raise INCOMPATIBLE_SCHEMA if messages without a schema may not go."""
        self._schemas.check_next(self._topic, None)

    def _of_version(self, number: int) -> BoundSchema:
        self._refresh()
        known = self._known.get(number)
        if known is None:
            try:
                schema = self._schemas.version(self._topic, number).schema
            except PenstockError as error:
                raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, error.message) from None
            known = self._known[number] = BoundSchema(number, codec_for(schema))
        return known

    def _remember(self, key: Any, scheme: BoundSchema) -> BoundSchema:
        if len(self._known) >= TOPIC_SCHEMAS_MAX:
            self._known.clear()
        self._known[key] = scheme
        return scheme

    def _refresh(self) -> SchemaVersion | None:
        self.changes, newest = self._schemas.changes, self._schemas.latest(self._topic)
        if newest is not self.newest:
            self.newest = newest
            self._known.clear()
            self.string = None
        return newest


def _key(schema: SchemaInfo) -> Any:
    return schema.type, schema.data, tuple(sorted(schema.properties.items()))


def _text_key(key: Any) -> str | None:
    if key is not None and not isinstance(key, str):
        raise PenstockError(ErrorKind.BAD_MESSAGE, "key: a text is expected unless there is a key_schema")
    return key


def _from_base64(value: Any, part: str) -> bytes:
    try:
        if isinstance(value, str):
            return a2b_base64(value, strict_mode=True)
    except ValueError:
        pass
    raise PenstockError(ErrorKind.BAD_MESSAGE, f"{part}: base64 is expected")
