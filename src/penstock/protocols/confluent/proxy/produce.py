"""Producing to a topic or partition: the request's JSON to records, whole or not at all, and a result for each record."""

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.headers import Headers
from penstock.model.subjects import VALUE
from penstock.protocols.auth.permissions import ADMIN
from penstock.protocols.confluent.call import NO_JSON, UNREADABLE
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.trace import PARENT

from .call import ProxyCall
from .codes import FORBIDDEN, KAFKA_ERROR, RETRIABLE, TOO_LARGE, UNAUTHENTICATED
from .formats import Format, format_of
from .publishing import TIME_MAX, NewRecord, Stored
from .schemas import INVALID, KEY, UNSERIALIZED, ContentSchema

KEY_SCHEMA_MISSING: Final = ConfluentCode(422, 42201)
VALUE_SCHEMA_MISSING: Final = ConfluentCode(422, 42202)

# Kafka's, which clients compare.
TOO_LARGE_TEXT: Final = (
    "The server has a configurable maximum message size to avoid unbounded memory allocation. "
    "This error is thrown if the client attempt to produce a message larger than this maximum."
)
_FIELDS: Final = frozenset(("records", "key_schema", "key_schema_id", "value_schema", "value_schema_id"))
_CONTENTS: Final = frozenset(("key", "value"))
_RECORD_FIELDS: Final = frozenset(("key", "value", "partition", "headers", "timestamp"))

Encode = Callable[[Any], bytes]


class RecordHeader(msgspec.Struct):
    """A header; `key` names it, too. The value is base64."""

    name: str
    value: str | None = None


class ProduceRecord(msgspec.Struct):
    """A record; a key or value that is missing is null."""

    key: Any = None
    value: Any = None
    partition: int | None = None
    headers: list[RecordHeader] = []
    timestamp: int | None = None


class ProduceRequest(msgspec.Struct):
    """Records, with the schemas of their keys and values as text or by id."""

    records: list[ProduceRecord]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class RecordResult(msgspec.Struct):
    """Where a record was stored, or why it was not."""

    partition: int | None = None
    offset: int | None = None
    error_code: int | None = None
    error: str | None = None


class ProduceAnswer(msgspec.Struct):
    """A result for each record, in their order."""

    offsets: list[RecordResult]
    key_schema_id: int | None = None
    value_schema_id: int | None = None


class _Side(NamedTuple):
    """The keys or the values of a request: their schema as it was given, and the codes of their errors."""

    name: str
    subject: str
    missing: ConfluentCode


async def produce(call: ProxyCall, partition: int | None = None) -> tuple[int, ProduceAnswer]:
    """Publish the records of a request; returns the status, too. Raises ConfluentError, PenstockError; then nothing was stored."""
    topic = call.topic
    call.caller.may_produce(topic)
    schemas = await call.proxy.publishing.open(topic)
    request = _request(call)
    given: list[dict[str, Any]] = request["records"]
    bare = all(record.keys() <= _CONTENTS for record in given)
    partitions = [partition] * len(given) if bare else [_partition(record, partition) for record in given]
    call.proxy.publishing.check_partitions(topic, list({*partitions, partition}))
    encoding = format_of(call.media)
    subject_of = call.proxy.schemas.subject_of
    key = _Side("key", subject_of(topic, KEY), KEY_SCHEMA_MISSING)
    value = _Side("value", subject_of(topic, VALUE), VALUE_SCHEMA_MISSING)
    key_schema, keys = await _encoded(call, request, encoding, key)
    value_schema, values = await _encoded(call, request, encoding, value)
    headers = _all_headers(call, [{}] * len(given) if bare else given)
    times = [None] * len(given) if bare else [_timestamp(record) for record in given]
    for schema in (key_schema, value_schema):
        if schema is not None and schema.version is None:
            await call.proxy.schemas.register(schema, forced=call.caller.allowed(topic)[ADMIN])
    if key_schema is not None:
        keys = [None if one is None else key_schema.framed(one) for one in keys]
    if encoding is Format.BINARY:
        versions, values = await _unframed(call, schemas, values)
    else:
        version = None
        if value_schema is not None and value_schema.version is not None:
            version = call.proxy.schemas.version_in(topic, value_schema.version)
        versions = _versions(encoding, schemas, value_schema, version, given, values)
        if value_schema is not None and value_schema.version is not None and version is None:
            values = [None if one is None else value_schema.framed(one) for one in values]
    records = [
        NewRecord(*each) for each in zip(keys, values, versions, partitions, headers, times, strict=True)
    ]
    results = await call.proxy.publishing.publish(topic, schemas, records)
    offsets = [_result(one) for one in results]
    ids = [
        None if one is None or one.version is None else one.version.id for one in (key_schema, value_schema)
    ]
    return _status(results), ProduceAnswer(offsets, *ids)


# -- the request


def _request(call: ProxyCall) -> dict[str, Any]:
    """The body, with records that are objects of known fields. Raises ConfluentError."""
    request = call.json(Any)
    if not isinstance(request, dict):
        raise ConfluentError(NO_JSON, "Bad Request: the body is not an object")
    records = request.get("records")
    if records is None or records == []:
        raise ConfluentError(UNREADABLE, "records must not be empty")
    if not isinstance(records, list):
        raise ConfluentError(NO_JSON, "Bad Request: records is not an array")
    most = call.caller.context.limits.max_messages_per_request
    if len(records) > most:
        raise ConfluentError(TOO_LARGE, f"{len(records)} records; the most is {most}")
    _check_fields(request, _FIELDS, "the request")
    for record in records:
        if not isinstance(record, dict):
            raise ConfluentError(NO_JSON, "Bad Request: a record is not an object")
        _check_fields(record, _RECORD_FIELDS, "a record")
    return request


def _check_fields(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if not given.keys() <= known:
        name = next(name for name in given if name not in known)
        raise ConfluentError(UNREADABLE, f"Unrecognized field: {name[:80]} in {where}")


def _partition(record: Mapping[str, Any], default: int | None) -> int | None:
    found = record.get("partition")
    if found is None:
        return default
    if type(found) is not int:
        raise ConfluentError(NO_JSON, "Bad Request: partition is not a number")
    return found


def _timestamp(record: Mapping[str, Any]) -> int | None:
    found = record.get("timestamp")
    if found is not None and (type(found) is not int or not 0 <= found <= TIME_MAX):
        raise ConfluentError(UNREADABLE, "timestamp is not a number of milliseconds since the epoch")
    return found


def _all_headers(call: ProxyCall, given: Sequence[Mapping[str, Any]]) -> list[Headers]:
    """The headers of each record, with those that carry on the request's trace. Raises ConfluentError."""
    found = [_headers(record) for record in given]
    most = call.caller.context.limits.max_properties_bytes
    for headers in found:
        size = sum([len(name) + len(value or b"") for name, value in headers])
        if size > most:
            raise ConfluentError(TOO_LARGE, f"headers of {size} bytes; the most is {most}")
    trace = call.exchange.trace()
    if trace is None:
        return found
    carried = [(name, text.encode()) for name, text in trace.items()]
    return [
        headers if any(name == PARENT for name, _ in headers) else [*headers, *carried] for headers in found
    ]


def _headers(record: Mapping[str, Any]) -> Headers:
    given = record.get("headers")
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ConfluentError(UNREADABLE, "headers is not an array")
    found: list[tuple[str, bytes | None]] = []
    for header in given:
        name = header.get("name", header.get("key")) if isinstance(header, dict) else None
        value = header.get("value") if isinstance(header, dict) else None
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise ConfluentError(UNREADABLE, "a header is not an object with a name and a value in base64")
        try:
            found.append((name, None if value is None else a2b_base64(value, strict_mode=True)))
        except ValueError:
            raise ConfluentError(UNREADABLE, f"the value of the header {name[:80]} is not base64") from None
    return found


# -- contents


async def _encoded(
    call: ProxyCall, request: Mapping[str, Any], format: Format, side: _Side
) -> tuple[ContentSchema | None, list[bytes | None]]:
    """The schema of the keys or values, if they have one, and their bytes without framing. Raises ConfluentError."""
    data = [record.get(side.name) for record in request["records"]]
    if format is Format.BINARY:
        return None, [None if one is None else from_base64(one) for one in data]
    if format is Format.JSON:
        return None, [None if one is None else to_json(one) for one in data]
    schema = await _schema(call, request, format.schema_type or "", side)
    if schema is None:
        if any(one is not None for one in data):
            text = f"Request includes {side.name}s but does not include {side.name} schema"
            raise ConfluentError(side.missing, text)
        return None, [None] * len(data)
    return schema, [None if one is None else schema.encode(one) for one in data]


async def _schema(
    call: ProxyCall, request: Mapping[str, Any], kind: str, side: _Side
) -> ContentSchema | None:
    text, schema_id = request.get(f"{side.name}_schema"), request.get(f"{side.name}_schema_id")
    if text is not None and schema_id is not None:
        raise ConfluentError(INVALID, f"{side.name}_schema and {side.name}_schema_id exclude one another")
    if text is not None:
        if not isinstance(text, str):
            raise ConfluentError(NO_JSON, f"Bad Request: {side.name}_schema is not a text")
        return await call.proxy.schemas.named(side.subject, kind, text)
    if schema_id is None:
        return None
    if isinstance(schema_id, str) and schema_id.isascii() and schema_id.isdigit() and len(schema_id) < 11:
        schema_id = int(schema_id)
    if type(schema_id) is not int:
        raise ConfluentError(NO_JSON, f"Bad Request: {side.name}_schema_id is not a number")
    return await call.proxy.schemas.registered(side.subject, kind, schema_id)


def _versions(
    format: Format,
    schemas: TopicSchemas,
    schema: ContentSchema | None,
    version: int | None,
    given: Sequence[Mapping[str, Any]],
    values: Sequence[bytes | None],
) -> list[int | None]:
    """The topic's schema version of each value; `version` is that of their schema. Raises ConfluentError if values without a schema may not be published."""
    if schema is not None and schema.version is not None:
        return [None if one is None else version for one in values]
    if format is Format.JSON and schemas.of_json:
        return [json_version(schemas, record.get("value")) for record in given]
    _check_unversioned(schemas)
    return [None] * len(values)


async def _unframed(
    call: ProxyCall, schemas: TopicSchemas, values: Sequence[bytes | None]
) -> tuple[list[int | None], list[bytes | None]]:
    """Values as the topic stores them, with their versions. Raises ConfluentError if one without a version may not be published."""
    found = await call.proxy.schemas.unframed(call.topic, values)
    if any(version is None and value is not None for version, value in found):
        _check_unversioned(schemas)
    return [version for version, _ in found], [value for _, value in found]


def _check_unversioned(schemas: TopicSchemas) -> None:
    try:
        schemas.check_unversioned()
    except PenstockError as error:
        raise ConfluentError(UNSERIALIZED, f"Error serializing message. {error.message}") from None


def json_version(schemas: TopicSchemas, value: Any) -> int | None:
    """The version of the topic's JSON schema, if a value fits it."""
    if value is None:
        return None
    bound = schemas.unnamed(value)
    try:
        bound.encode(value)
    except PenstockError:
        return None
    return bound.version


def from_base64(data: Any) -> bytes:
    """Raises ConfluentError."""
    try:
        if isinstance(data, str) and len(data) % 4 == 0:
            return a2b_base64(data, strict_mode=True)
    except ValueError:
        pass
    raise ConfluentError(NO_JSON, f"Bad Request: data={str(data)[:200]} is not a base64 string.")


def to_json(data: Any) -> bytes:
    """Compact JSON. Raises ConfluentError for text that is not Unicode."""
    try:
        return msgspec.json.encode(data)
    except (UnicodeEncodeError, RecursionError) as error:
        raise ConfluentError(NO_JSON, f"Bad Request: {error}") from None


# -- results


def _result(one: Stored | PenstockError) -> RecordResult:
    if isinstance(one, Stored):
        return RecordResult(one.partition, one.offset)
    if one.kind is ErrorKind.TOO_LARGE:
        return RecordResult(error_code=KAFKA_ERROR.code, error=TOO_LARGE_TEXT)
    codes = {ErrorKind.FORBIDDEN: FORBIDDEN, ErrorKind.UNAUTHENTICATED: UNAUTHENTICATED}
    code = codes.get(one.kind, RETRIABLE if one.retriable else KAFKA_ERROR)
    return RecordResult(error_code=code.code, error=one.message)


def _status(results: Sequence[Stored | PenstockError]) -> int:
    kinds = {one.kind for one in results if isinstance(one, PenstockError)}
    for kind, status in (
        (ErrorKind.UNAUTHENTICATED, 401),
        (ErrorKind.FORBIDDEN, 403),
        (ErrorKind.TOO_LARGE, 422),
    ):
        if kind in kinds:
            return status
    return 200
