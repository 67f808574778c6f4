"""Keys and values of records: to bytes by their type or their schema."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.names import TopicName
from penstock.model.subjects import SUBJECT_NOT_FOUND, VALUE
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.proxy.call import shown
from penstock.protocols.confluent.proxy.produce import from_base64, to_json
from penstock.protocols.confluent.proxy.schemas import (
    INVALID,
    KEY,
    UNSERIALIZED,
    ContentSchema,
    ProxySchemas,
)
from penstock.protocols.confluent.registry.call import administers, may_read, may_register

from .record_shapes import Data

BAD_REQUEST: Final = ConfluentCode(400, 400)
KNOWN_MAX: Final = 100  # schemas of one stream
_REGISTRY_TYPES: Final = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
_TYPES: Final = {name: given for given, name in _REGISTRY_TYPES.items()}


class Content:
    """A key or value as it is stored: `payload` without framing, None for null. `type` is the answer's."""

    __slots__ = ("payload", "schema", "type")

    def __init__(self, type: str, payload: bytes | None, schema: ContentSchema | None = None) -> None:
        self.type = type
        self.payload = payload
        self.schema = schema


class Contents:
    """Encodes the keys or the values of a topic, and remembers their schemas: an id and a version keep their meaning. The newest
    schema of a subject is looked up again after `begin`. The subjects of other topics need the rights that the registry asks for."""

    def __init__(self, schemas: ProxySchemas, topic: TopicName, caller: Caller, *, keys: bool) -> None:
        """`caller` may produce to the topic."""
        self._schemas = schemas
        self._topic = topic
        self._caller = caller
        self._own = schemas.subject_of(topic, KEY if keys else VALUE)  # the subject that belongs to the topic
        self._known: dict[Hashable, ContentSchema] = {}
        self._newest: dict[Hashable, ContentSchema] = {}

    def begin(self) -> None:
        """Records of another group follow."""
        self._newest.clear()

    def encode_plain(self, given: Data) -> Content | None:
        """A key or value without a schema; None if it has one. Raises ConfluentError."""
        encode = _PLAIN.get(given.type or "")
        data = given.data
        if encode is None:
            check(given)
            return Content("BINARY", None) if data is None and _is_bare(given) else None
        if not _is_bare(given):
            check(given)
        return Content(given.type or "", None if data is None else encode(data))

    async def encode(self, given: Data) -> Content:
        """A key or value with a schema. Raises ConfluentError, FORBIDDEN."""
        data = given.data
        if given.subject is not None:
            self._check(given.subject, given)
        schema = await self._schema(given)
        self._check(schema.subject, given)
        payload = None if data is None else _encoded(schema, data)
        if schema.version is None:  # not before a value fits
            forced = administers(self._caller, self._topic_of(schema.subject))
            await self._schemas.register(schema, forced=forced)
        return Content(_TYPES[schema.definition.schema_type], payload, schema)

    def _check(self, subject: str, given: Data) -> None:
        """Raise FORBIDDEN unless the caller may use the schemas of a subject, and register one if it is given as text."""
        if subject != self._own:
            check = may_read if given.schema is None else may_register
            check(self._caller, self._topic_of(subject))

    async def _schema(self, given: Data) -> ContentSchema:
        key = (
            *(given.type, given.subject, given.subject_name_strategy),
            *(given.schema_id, given.schema_version, given.schema),
        )
        newest = given.schema is None and given.schema_id is None and given.schema_version is None
        known = self._newest if newest else self._known
        found = known.get(key)
        if found is None:
            if len(known) >= KNOWN_MAX:
                known.clear()
            found = known[key] = await self._find(given)
        return found

    async def _find(self, given: Data) -> ContentSchema:
        schemas, subject = self._schemas, given.subject or self._own
        by_record = given.subject is None and given.subject_name_strategy in (
            "RECORD_NAME",
            "TOPIC_RECORD_NAME",
        )
        if given.schema is not None:
            found = await schemas.named(subject, _REGISTRY_TYPES[given.type or ""], given.schema)
            if by_record:
                found.subject = self._subject_by(found, given)
            return found
        if given.schema_id is not None:
            if by_record:
                named = await schemas.by_id(given.schema_id)
                subject = subject if named is None else self._subject_by(named, given)
            self._may_read(subject)
            return await self._registered(subject, given.schema_id)
        if by_record:
            raise ConfluentError(
                BAD_REQUEST,
                f"Bad Request: Cannot use schema_subject_strategy={given.subject_name_strategy} without schema_id or schema.",
            )
        self._may_read(subject)
        try:
            return await schemas.numbered(subject, str(given.schema_version or "latest"))
        except ConfluentError as error:
            if given.schema_version is None or error.code == SUBJECT_NOT_FOUND:
                text = f"Error serializing message. Error when fetching latest schema version. subject = {subject}"
                raise ConfluentError(UNSERIALIZED, text) from None
            text = f"Schema does not exist for subject: {subject}, version: {given.schema_version}"
            raise ConfluentError(BAD_REQUEST, f"Bad Request: {text}") from None

    async def _registered(self, subject: str, schema_id: int) -> ContentSchema:
        try:
            return await self._schemas.registered(subject, "", schema_id)
        except ConfluentError as error:
            if error.code != INVALID:
                raise
            text = f"Error when fetching schema version. subject = {subject}, schema_id = {schema_id}"
            raise ConfluentError(UNSERIALIZED, f"Error serializing message. {text}") from None

    def _topic_of(self, subject: str) -> TopicName | None:
        """The topic whose rights count for a subject."""
        return self._topic if subject == self._own else self._schemas.topic_of(subject)

    def _may_read(self, subject: str) -> None:
        """Raise FORBIDDEN unless the caller may know a subject."""
        may_read(self._caller, self._topic_of(subject))

    def _subject_by(self, schema: ContentSchema, given: Data) -> str:
        """The subject by the name of a schema's record. Raises ConfluentError."""
        name = schema.record
        if not name:
            raise ConfluentError(BAD_REQUEST, "Bad Request: the schema has no name of a record")
        return name if given.subject_name_strategy == "RECORD_NAME" else f"{shown(self._topic)}-{name}"


def _encoded(schema: ContentSchema, data: Any) -> bytes:
    """Raises ConfluentError."""
    try:
        return schema.encode(data)
    except ConfluentError as error:
        raise ConfluentError(BAD_REQUEST, f"Bad Request: {error.detail or error.message}") from None


def to_text(data: Any) -> bytes:
    """Raises ConfluentError for what is not a text, or not Unicode."""
    if not isinstance(data, str):
        raise ConfluentError(BAD_REQUEST, f"Bad Request: data={str(data)[:200]} is not a string.")
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise ConfluentError(BAD_REQUEST, f"Bad Request: {error}") from None


_PLAIN: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "BINARY": from_base64,
    "JSON": to_json,
    "STRING": to_text,
}


def _is_bare(given: Data) -> bool:
    """Whether nothing names a schema but perhaps the type."""
    return (
        given.schema is None
        and given.schema_id is None
        and given.schema_version is None
        and given.subject is None
        and given.subject_name_strategy is None
    )


def check(given: Data) -> None:
    """Raise ConfluentError unless the fields of a key or value go together."""
    problem = _problem(given)
    if problem:
        raise ConfluentError(BAD_REQUEST, f"Bad Request: Error processing JSON: {problem}")


def _problem(given: Data) -> str:
    named: dict[str, Any] = {
        "schema_id": given.schema_id,
        "schema_version": given.schema_version,
        "schema": given.schema,
    }
    if given.subject is not None and given.subject_name_strategy is not None:
        return "Only one of 'subject_name_strategy' or 'subject' can be used."
    if sum(one is not None for one in named.values()) > 1:
        return "Only one of 'schema_id', 'schema_version' or 'schema' can be used."
    if given.type is None:
        return "'schema' needs 'type'." if given.schema is not None else ""
    if given.type not in _REGISTRY_TYPES:
        named = {"subject_strategy": given.subject_name_strategy, "subject": given.subject, **named}
        used = next(name for name, value in named.items() if value is not None)
        return f"'type={given.type}' cannot be used with '{used}'."
    for name in ("schema_id", "schema_version"):
        if named[name] is not None:
            return f"'{name}={named[name]}' cannot be used with 'serializer'."
    return "" if given.schema is not None else "'schema_version=latest' cannot be used with 'serializer'."
