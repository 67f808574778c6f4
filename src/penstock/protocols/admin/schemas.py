"""The schema registry under Pulsar's admin paths (docs/schemas.md)."""

from typing import Any

import msgspec

from penstock.codec.key_value import join, key_value_parts
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType, SchemaVersion

from .call import Call
from .operations import Table

table = Table()

_NO_DEFINITION = (b"", b"null", b'""')  # Python's client writes null

_TOPIC = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"


class SchemaPayload(msgspec.Struct):
    """Pulsar's PostSchemaPayload; `data` is what the answers call it, so that an answer can be sent back."""

    type: str
    schema: str | None = None
    data: str | None = None
    name: str = ""
    properties: dict[str, str] | None = None


def _given(call: Call) -> SchemaInfo:
    """The schema in the body; raises BAD_VALUE_SCHEMA (422), also for one that cannot be understood."""
    try:
        given = msgspec.json.decode(call.content, type=SchemaPayload)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"bad schema: {error}") from None
    kind = SchemaType.named(given.type)
    if kind is None:
        raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"unknown schema type {given.type[:80]!r}")
    text = given.schema if given.schema is not None else given.data or ""
    data = _key_value_data(text) if kind is SchemaType.KEY_VALUE else text.encode()
    schema = SchemaInfo(kind, data, given.name, given.properties or {})
    _check_undefined(schema)
    return schema


def _check_undefined(schema: SchemaInfo, part: str = "") -> None:
    """Raise BAD_VALUE_SCHEMA for a definition if the type has none: it would be stored without meaning."""
    if schema.type is SchemaType.KEY_VALUE:
        key, value, _ = key_value_parts(schema)
        _check_undefined(key, "key: ")
        _check_undefined(value, "value: ")
    elif not schema.type.has_definition and schema.data.strip() not in _NO_DEFINITION:
        hint = f" (the property {part[:-2]}.schema.type names another)" if part else ""
        raise PenstockError(
            ErrorKind.BAD_VALUE_SCHEMA, f"{part}a schema of type {schema.type.name} has no definition{hint}"
        )


def _key_value_data(text: str) -> bytes:
    """`{"key": …, "value": …}` as stored bytes; "" is a part without a definition."""
    try:
        tree = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        parts = [bytes(tree[part]) for part in ("key", "value")]
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
        raise PenstockError(
            ErrorKind.BAD_VALUE_SCHEMA, 'a key/value schema is a JSON object {"key": …, "value": …}'
        ) from None
    return join(*(b"" if part in (b'""', b"null") else part for part in parts))


def _text(schema: SchemaInfo) -> str:
    """The definition as text."""
    if schema.type is not SchemaType.KEY_VALUE:
        return schema.data.decode("utf-8", "replace")
    key, value, _ = key_value_parts(schema)
    raw = {name: _raw(part) for name, part in (("key", key), ("value", value))}
    return msgspec.json.encode(raw).decode()


def _raw(part: SchemaInfo) -> msgspec.Raw:
    return msgspec.Raw(part.data) if part.data and part.type.has_definition else msgspec.Raw(b'""')


def _described(found: SchemaVersion) -> dict[str, Any]:
    return {
        "version": found.version,
        "type": found.schema.type.name,
        "timestamp": found.timestamp,
        "data": _text(found.schema),
        "properties": found.schema.properties,
    }


def _version(number: int) -> dict[str, Any]:
    return {"version": {"version": number}}


@table.on("GET", f"{_TOPIC}/schema")
async def schema(call: Call) -> dict[str, Any]:
    """The newest schema of a topic."""
    return _described(call.broker.schemas.get(call.seen_topic))


@table.on("GET", f"{_TOPIC}/schema/{{version}}", query=("deleted",))
async def schema_version(call: Call) -> dict[str, Any]:
    """One version of a topic's schema since it was last deleted; with `deleted` also one before it."""
    schemas, topic, number = call.broker.schemas, call.seen_topic, call.number("version")
    found = await schemas.find_version(topic, number)
    return _described(found if call.flag("deleted") else schemas.get(topic, number))


@table.on("GET", f"{_TOPIC}/schemas", query=("deleted",))
async def schemas(call: Call) -> dict[str, Any]:
    """Every version of a topic's schema since it was last deleted; with `deleted` those before it, too."""
    every = call.broker.schemas.all(call.seen_topic, deleted=True)
    found = every if call.flag("deleted") else call.broker.schemas.all(call.seen_topic)
    if not every:
        raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema not found")
    return {"getSchemaResponses": [_described(version) for version in found]}


@table.on("GET", f"{_TOPIC}/metadata")
async def metadata(call: Call) -> dict[str, Any]:
    """Which versions of a topic's schema there are."""
    found = call.broker.schemas.all(call.seen_topic)
    if not found:
        raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema not found")
    index = [{"version": v.version, "timestamp": v.timestamp, "type": v.schema.type.name} for v in found]
    return {"info": index[-1], "index": index}


@table.on("POST", f"{_TOPIC}/schema", body=SchemaPayload)
async def register(call: Call) -> dict[str, Any]:
    """Register a schema: answers its version, an old one if the schema is known already."""
    topic, given = call.produced_topic, _given(call)
    call.broker.namespaces.check(topic.namespace_name)
    number = await call.broker.schemas.get_or_create(topic, given, forced=True)
    return _version(-1 if number is None else number)


@table.on("POST", f"{_TOPIC}/compatibility", body=SchemaPayload, status=202)
async def compatibility(call: Call) -> dict[str, Any]:
    """Whether a schema may follow those of the topic, and by which strategy; `reason` says why not."""
    topic, given = call.seen_topic, _given(call)
    call.broker.schemas.check(topic, given)
    reason = await call.broker.schemas.objection(topic, given)
    body: dict[str, Any] = {
        "compatibility": reason is None,  # Pulsar's name
        "isCompatibility": reason is None,  # and what its field is called
        "schemaCompatibilityStrategy": call.broker.schemas.strategy(topic),
    }
    if reason is not None:
        body["reason"] = reason
    return body


@table.on("POST", f"{_TOPIC}/version", body=SchemaPayload)
async def version_of(call: Call) -> dict[str, Any]:
    """The version of a schema, -1 if the topic does not have the schema."""
    topic, given = call.seen_topic, _given(call)
    call.broker.schemas.check(topic, given)
    found = call.broker.schemas.find(topic, given)
    return {"version": -1 if found is None else found}


@table.on("DELETE", f"{_TOPIC}/schema", query=("force",))
async def delete(call: Call) -> dict[str, Any]:
    """Delete a topic's schema: a new version says so; with `force` every version is forgotten."""
    number = await call.broker.schemas.delete(call.topic, force=call.flag("force"))
    return {"version": number}
