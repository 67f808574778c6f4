"""What a schema registry is asked, by Confluent's REST API."""

from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility

from .connection import RegistryConnection

_LEVELS: Final = {"NONE": Compatibility.ALWAYS_COMPATIBLE}

T = TypeVar("T")
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]  # what four bytes in front of values hold


class Reference(msgspec.Struct, frozen=True):
    """A schema of another subject that a schema uses, and the name by which it does."""

    name: str
    subject: str
    version: Number


class Definition(msgspec.Struct, frozen=True):
    """A schema as a registry has it: its type (AVRO, JSON, PROTOBUF), text, and the schemas that it uses."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """A version of a subject."""

    id: int
    version: int
    definition: Definition


# Answers; fields that nobody needs here are left out.


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    schema: str
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None

    @property
    def definition(self) -> Definition:
        return Definition(self.schema_type or "AVRO", self.schema, self.references or ())


class _Version(_Schema, frozen=True, kw_only=True):
    id: Number
    version: Number


class _Found(msgspec.Struct, frozen=True):
    id: Number
    version: Number


class _Place(msgspec.Struct, frozen=True):
    subject: str
    version: Number


class _Verdict(msgspec.Struct, frozen=True):
    is_compatible: bool = True
    messages: tuple[str, ...] | None = None


class _Level(msgspec.Struct, frozen=True, rename="camel"):
    compatibility_level: str | None = None


class RegistryClient:
    """Raises as `RegistryConnection`, and UNAVAILABLE for answers of another shape."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._connection = RegistryConnection(settings)
        self._normalize = "normalize=true" if settings.schema_registry_normalize else ""

    async def answers(self) -> None:
        """Whether it answers at all, be it a refusal: raises UNAVAILABLE where it does not."""
        try:
            await self._connection.call("GET", "/config", missing=True)
        except PenstockError as error:
            if error.kind is ErrorKind.UNAVAILABLE:
                raise

    async def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None where there is none."""
        return _registered(await self._get(f"/subjects/{_path(subject)}/versions/latest", _Version))

    async def versions(self, subject: str) -> list[int]:
        """The versions of a subject that are not deleted."""
        return await self._get(f"/subjects/{_path(subject)}/versions", list[Number]) or []

    async def version(self, subject: str, number: int) -> Registered | None:
        """One version, also one that was deleted and is still kept."""
        path = f"/subjects/{_path(subject)}/versions/{number}?deleted=true"
        return _registered(await self._get(path, _Version))

    async def by_id(self, number: int, subject: str) -> Definition | None:
        """The schema with an id; None where there is none.

        In a registry with contexts the id is one of the context that has the subject, as Confluent's deserializers ask.
        """
        found = await self._get(f"/schemas/ids/{number}?subject={_path(subject)}", _Schema)
        return None if found is None else found.definition

    async def versions_of_id(self, number: int) -> dict[str, int]:
        """The versions that have an id, by their subjects."""
        found = await self._get(f"/schemas/ids/{number}/versions?deleted=true", list[_Place])
        return {one.subject: one.version for one in found or ()}

    async def lookup(self, subject: str, definition: Definition) -> Registered | None:
        """The version of a schema that a subject has; None where it has not."""
        path = _with(f"/subjects/{_path(subject)}", self._normalize)
        found = await self._post(path, definition, _Found)
        return None if found is None else Registered(found.id, found.version, definition)

    async def register(self, subject: str, definition: Definition) -> None:
        """Register a schema; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA."""
        path = _with(f"/subjects/{_path(subject)}/versions", self._normalize)
        await self._connection.call("POST", path, _body(definition))

    async def objection(self, subject: str, definition: Definition) -> str | None:
        """Why a schema may not be the next of a subject; None where it may."""
        path = _with(
            f"/compatibility/subjects/{_path(subject)}/versions/latest?verbose=true", self._normalize
        )
        found = await self._post(path, definition, _Verdict)
        if found is None or found.is_compatible:
            return None
        return "; ".join(found.messages or ()) or "the schema registry says it is incompatible"

    async def strategy(self, subject: str) -> Compatibility:
        """How the registry checks what follows in a subject; UNDEFINED for a level that Pulsar has no word for."""
        path = f"/config/{_path(subject)}?defaultToGlobal=true"
        found = await self._get(path, _Level)
        if found is None or not found.compatibility_level:
            found = await self._get("/config", _Level)
        level = ("" if found is None else found.compatibility_level or "").upper()
        return _LEVELS.get(level) or Compatibility.__members__.get(level, Compatibility.UNDEFINED)

    async def delete(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete every version of a subject; returns them. `permanent`: the registry keeps them no longer."""
        path = f"/subjects/{_path(subject)}"
        found = await self._connection.call("DELETE", path, missing=True)
        if permanent:
            await self._connection.call("DELETE", f"{path}?permanent=true", missing=True)
        return _converted(found, list[Number]) or []

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def _get(self, path: str, shape: type[T]) -> T | None:
        return _converted(await self._connection.call("GET", path, missing=True), shape)

    async def _post(self, path: str, definition: Definition, shape: type[T]) -> T | None:
        return _converted(await self._connection.call("POST", path, _body(definition), missing=True), shape)


def _converted(found: Any, shape: type[T]) -> T | None:
    """An answer, which another's server gives; None for none."""
    if found is None:
        return None
    try:
        return msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the schema registry answers with something else than asked for: {error}"
        ) from None


def _path(subject: str) -> str:
    return quote(subject, safe="")


def _with(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}" if query else path


def _body(definition: Definition) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": definition.text}
    if definition.type != "AVRO":
        body["schemaType"] = definition.type
    if definition.references:
        body["references"] = definition.references
    return body


def _registered(found: _Version | None) -> Registered | None:
    return None if found is None else Registered(found.id, found.version, found.definition)
