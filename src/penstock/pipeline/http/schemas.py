"""A topic's registered schemas over HTTP. Versions never change: a worker asks for each once."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.client.access import Access
from penstock.client.paths import schemas_path
from penstock.codec.key_value import join, key_value_parts
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType

from .calls import Caller, Calls
from .retry import retrying

_REFUSED: Final = "IncompatibleSchemaException"  # Pulsar's answer is a 500 then


def all_versions(client: Caller, topic: str) -> dict[int, SchemaInfo]:
    """Every version of a topic's schema, oldest first; empty if the last one was deleted."""
    path = schemas_path(TopicName.parse(topic))
    try:
        client.call("GET", f"{path}/schema")
        answer = client.call("GET", f"{path}/schemas?deleted=true")  # stored messages may name them
    except PenstockError as error:
        if error.kind in (ErrorKind.SCHEMA_NOT_FOUND, ErrorKind.TOPIC_NOT_FOUND):
            return {}
        raise
    return {int(found["version"]): _schema(found) for found in answer["getSchemaResponses"]}


@lru_cache(maxsize=1024)
def one_version(access: Access, topic: str, ledger: int, version: int) -> SchemaInfo:
    """One version; remembered in this process, for this incarnation of the topic. Raises SCHEMA_NOT_FOUND."""
    with Calls(access) as client:
        path = f"{schemas_path(TopicName.parse(topic))}/schema/{version}?deleted=true"
        return _schema(retrying(lambda: client.call("GET", path)))


def register(client: Caller, topic: str, schema: SchemaInfo) -> int:
    """Register a schema, or find it: its version. Raises INCOMPATIBLE_SCHEMA if it may not follow."""
    path = schemas_path(TopicName.parse(topic))
    body = {"type": schema.type.name, "schema": _text(schema), "properties": schema.properties}
    try:
        verdict = client.call("POST", f"{path}/compatibility", body=body)
    except PenstockError as error:
        if _REFUSED not in error.message:
            raise
        raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, _reason(error.message)) from None
    if not verdict.get(
        "isCompatibility", verdict.get("compatibility")
    ):  # as documented, and as Pulsar names it
        raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, str(verdict.get("reason", "it may not follow")))
    return int(client.call("POST", f"{path}/schema", body=body)["version"]["version"])


def _reason(text: str) -> str:
    """What Pulsar says in an answer that has its stack trace, too."""
    return " ".join(text.partition("Message: ")[2].partition("Stacktrace:")[0].split()) or text


def _schema(found: dict[str, Any]) -> SchemaInfo:
    kind = SchemaType[found["type"]]
    text = found["data"]
    data = _pair(text) if kind is SchemaType.KEY_VALUE else text.encode()
    return SchemaInfo(kind, data, found.get("name", ""), found.get("properties") or {})


def _pair(text: str) -> bytes:
    tree = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    parts = [bytes(tree[part]) for part in ("key", "value")]
    return join(*(b"" if part == b'""' else part for part in parts))


def _text(schema: SchemaInfo) -> str:
    if schema.type is not SchemaType.KEY_VALUE:
        return schema.data.decode()
    key, value, _ = key_value_parts(schema)
    raw = {name: msgspec.Raw(part.data or b'""') for name, part in (("key", key), ("value", value))}
    return msgspec.json.encode(raw).decode()
