"""What a schema registry is asked, by Confluent's REST API."""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility

from .connection import RegistryConnection

_LEVELS: Final = {"NONE": Compatibility.ALWAYS_COMPATIBLE}


class Reference(msgspec.Struct, frozen=True):
    """A schema of another subject that a schema uses, and the name by which it does."""

    name: str
    subject: str
    version: int


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


class RegistryClient:
    """Raises as `RegistryConnection`."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._connection = RegistryConnection(settings)
        self._normalize = "normalize=true" if settings.schema_registry_normalize else ""

    async def answers(self) -> None:
        """Whether it answers at all, be it a refusal: raises UNAVAILABLE where it does not."""
        try:
            await self._get("/config")
        except PenstockError as error:
            if error.kind is ErrorKind.UNAVAILABLE:
                raise

    async def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None where there is none."""
        return _registered(await self._get(f"/subjects/{_path(subject)}/versions/latest"))

    async def versions(self, subject: str) -> list[int]:
        """The versions of a subject that are not deleted."""
        return list(await self._get(f"/subjects/{_path(subject)}/versions") or ())

    async def version(self, subject: str, number: int) -> Registered | None:
        """One version, also one that was deleted and is still kept."""
        path = f"/subjects/{_path(subject)}/versions/{number}?deleted=true"
        return _registered(await self._get(path))

    async def by_id(self, number: int, subject: str) -> Definition | None:
        """The schema with an id; None where there is none.

        In a registry with contexts the id is one of the context that has the subject, as Confluent's deserializers ask.
        """
        found = await self._get(f"/schemas/ids/{number}?subject={_path(subject)}")
        return None if found is None else _definition(found)

    async def versions_of_id(self, number: int) -> dict[str, int]:
        """The versions that have an id, by their subjects."""
        found = await self._get(f"/schemas/ids/{number}/versions?deleted=true")
        return {one["subject"]: one["version"] for one in found or ()}

    async def lookup(self, subject: str, definition: Definition) -> Registered | None:
        """The version of a schema that a subject has; None where it has not."""
        path = _with(f"/subjects/{_path(subject)}", self._normalize)
        found = await self._connection.call("POST", path, _body(definition), missing=True)
        return None if found is None else Registered(found["id"], found["version"], definition)

    async def register(self, subject: str, definition: Definition) -> None:
        """Register a schema; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA."""
        path = _with(f"/subjects/{_path(subject)}/versions", self._normalize)
        await self._connection.call("POST", path, _body(definition))

    async def objection(self, subject: str, definition: Definition) -> str | None:
        """Why a schema may not be the next of a subject; None where it may."""
        path = _with(
            f"/compatibility/subjects/{_path(subject)}/versions/latest?verbose=true", self._normalize
        )
        found = await self._connection.call("POST", path, _body(definition), missing=True)
        if found is None or found.get("is_compatible", True):
            return None
        return "; ".join(found.get("messages") or ()) or "the schema registry says it is incompatible"

    async def strategy(self, subject: str) -> Compatibility:
        """How the registry checks what follows in a subject; UNDEFINED for a level that Pulsar has no word for."""
        found = await self._get(f"/config/{_path(subject)}?defaultToGlobal=true") or await self._get(
            "/config"
        )
        level = str((found or {}).get("compatibilityLevel", "")).upper()
        return _LEVELS.get(level) or Compatibility.__members__.get(level, Compatibility.UNDEFINED)

    async def delete(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete every version of a subject; returns them. `permanent`: the registry keeps them no longer."""
        path = f"/subjects/{_path(subject)}"
        found = await self._connection.call("DELETE", path, missing=True)
        if permanent:
            await self._connection.call("DELETE", f"{path}?permanent=true", missing=True)
        return list(found or ())

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def _get(self, path: str) -> Any:
        return await self._connection.call("GET", path, missing=True)


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


def _definition(found: Any) -> Definition:
    references = [
        Reference(one["name"], one["subject"], one["version"]) for one in found.get("references") or ()
    ]
    return Definition(found.get("schemaType") or "AVRO", found["schema"], tuple(references))


def _registered(found: Any) -> Registered | None:
    return None if found is None else Registered(found["id"], found["version"], _definition(found))
