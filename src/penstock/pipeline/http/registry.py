"""Schemas of a registry with Confluent's API: of a subject, and by the ids in front of values. They never change."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.client.access import Access, without_password
from penstock.client.http import RemoteError
from penstock.codec.json_schema.pulsar import FOREIGN
from penstock.codec.json_schema.records import record_of
from penstock.codec.registered import schema_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .calls import Caller, Calls
from .retry import retrying

REFERENCES_MAX: Final = 200  # that one schema uses, also through others
IDS_MAX: Final = 1024  # that a process remembers

_by_id: dict[tuple[Access, str, int], SchemaInfo] = {}


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Definition(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    schema_type: str = "AVRO"
    references: tuple[_Reference, ...] | None = None


def schema_of_subject(access: Access, subject: str, version: str = "latest") -> SchemaInfo | None:
    """A version of a subject; None if the registry does not have it. Raises PenstockError."""
    with Calls(access) as client:
        return _schema(client, _version_path(subject, version))


def schema_by_id(access: Access, subject: str, number: int, ask: bool = True) -> SchemaInfo | None:
    """The schema with an id, which a process asks for once; None if the registry does not have it, or without `ask` if this
    process does not know it.

    In a registry with contexts the id is one of the subject's context. Raises PenstockError.
    """
    key = access, subject, number
    if key not in _by_id and ask:
        path = f"/schemas/ids/{number}?subject={quote(subject, safe='')}"
        with Calls(access) as client:
            found = retrying(lambda: _schema(client, path))
        if found is None:  # not remembered: it may be registered later
            return None
        if len(_by_id) >= IDS_MAX:
            _by_id.pop(next(iter(_by_id)), None)
        _by_id[key] = found
    return _by_id.get(key)


def _schema(client: Caller, path: str) -> SchemaInfo | None:
    found = _get(client, path)
    if found is None:
        return None
    texts: dict[str, str] = {}
    _collect(client, found.references or (), texts)
    made = schema_of(found.schema_type, found.schema, texts)
    if FOREIGN in made.properties and (record := record_of(found.schema)):  # else it is text
        return SchemaInfo(SchemaType.JSON, record.encode())
    return made


def _collect(client: Caller, references: Sequence[_Reference], texts: dict[str, str]) -> None:
    """Add the definitions that are referenced, also by one another, under the names by which they are."""
    for one in references:
        if one.name in texts:
            continue
        if len(texts) == REFERENCES_MAX:
            raise PenstockError(
                ErrorKind.BAD_VALUE_SCHEMA, f"a schema refers to more than {REFERENCES_MAX} others"
            )
        found = _get(client, _version_path(one.subject, str(one.version)))
        if found is None:
            raise PenstockError(
                ErrorKind.BAD_VALUE_SCHEMA,
                f"version {one.version} of {one.subject} is referenced and not there",
            )
        texts[one.name] = found.schema
        _collect(client, found.references or (), texts)


def _get(client: Caller, path: str) -> _Definition | None:
    try:
        answer: Any = client.call("GET", path)
        return msgspec.convert(answer, _Definition)
    except RemoteError as error:
        if error.code // 100 == 404:  # a subject, version or schema
            return None
        if error.status != 404:
            raise
        why = error.message  # of a proxy, or of a server that has no such paths
    except msgspec.ValidationError as error:
        why = str(error)
    raise PenstockError(
        ErrorKind.UNAVAILABLE,
        f"{without_password(client.url)} does not answer as a schema registry does: {why}",
    )


def _version_path(subject: str, version: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}"
