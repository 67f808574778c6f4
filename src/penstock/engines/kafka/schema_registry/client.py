"""A schema registry, asked over Confluent's REST API."""

import ssl
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

TIMEOUT_MS: Final = 5000  # of one answer, at most
CONNECTIONS_MAX: Final = 16
_CONTENT: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_REFUSED: Final = {
    401: ErrorKind.FORBIDDEN,
    403: ErrorKind.FORBIDDEN,
    409: ErrorKind.INCOMPATIBLE_SCHEMA,
    422: ErrorKind.BAD_VALUE_SCHEMA,
}


class Definition(msgspec.Struct, frozen=True):
    """A schema as a registry has it: its type (AVRO, JSON, PROTOBUF) and text."""

    type: str
    text: str


class Registered(msgspec.Struct, frozen=True):
    """A version of a subject."""

    id: int
    version: int
    definition: Definition


class RegistryClient:
    """Raises UNAVAILABLE where the registry does not answer, FORBIDDEN, and BAD_PARAMETER for settings that cannot be used."""

    def __init__(self, settings: ClusterSettings) -> None:
        url = settings.schema_registry.rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"engine.schema_registry: {url!r} does not begin with http:// or https://",
            )
        self.url = url
        name = settings.schema_registry_username
        trust = settings.tls_trust_file
        self._http = httpx.AsyncClient(
            auth=httpx.BasicAuth(name, settings.schema_registry_password.reveal()) if name else None,
            timeout=min(settings.timeout_ms, TIMEOUT_MS) / 1000,
            verify=ssl.create_default_context(cafile=trust) if trust else True,
            trust_env=False,
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
        )

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

    async def by_id(self, number: int) -> Definition | None:
        """The schema with an id; None where there is none."""
        found = await self._get(f"/schemas/ids/{number}")
        return None if found is None else _definition(found)

    async def versions_of_id(self, number: int) -> dict[str, int]:
        """The versions that have an id, by their subjects."""
        found = await self._get(f"/schemas/ids/{number}/versions?deleted=true")
        return {one["subject"]: one["version"] for one in found or ()}

    async def lookup(self, subject: str, definition: Definition) -> Registered | None:
        """The version of a schema that a subject has; None where it has not."""
        found = await self._call("POST", f"/subjects/{_path(subject)}", _body(definition), missing=True)
        return None if found is None else Registered(found["id"], found["version"], definition)

    async def register(self, subject: str, definition: Definition) -> None:
        """Register a schema; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA."""
        await self._call("POST", f"/subjects/{_path(subject)}/versions", _body(definition))

    async def objection(self, subject: str, definition: Definition) -> str | None:
        """Why a schema may not be the next of a subject; None where it may."""
        path = f"/compatibility/subjects/{_path(subject)}/versions/latest?verbose=true"
        found = await self._call("POST", path, _body(definition), missing=True)
        if found is None or found.get("is_compatible", True):
            return None
        return "; ".join(found.get("messages") or ()) or "the schema registry says it is incompatible"

    async def delete(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete every version of a subject; returns them. `permanent`: the registry keeps them no longer."""
        path = f"/subjects/{_path(subject)}"
        found = await self._call("DELETE", path, missing=True)
        if permanent:
            await self._call("DELETE", f"{path}?permanent=true", missing=True)
        return list(found or ())

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def _get(self, path: str) -> Any:
        return await self._call("GET", path, missing=True)

    async def _call(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """The answer's JSON; with `missing` None for 404."""
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = await self._http.request(method, self.url + path, content=content, headers=_CONTENT)
        except httpx.HTTPError as error:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"the schema registry at {self.url} does not answer: {str(error) or type(error).__name__}",
            ) from None
        if missing and answer.status_code == 404:
            return None
        if answer.status_code >= 300:
            kind = _REFUSED.get(answer.status_code, ErrorKind.UNAVAILABLE)
            raise PenstockError(
                kind, f"the schema registry answers with status {answer.status_code}: {_reason(answer)}"
            )
        try:
            return answer.json()
        except ValueError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE, f"{self.url} answers with something else than JSON"
            ) from None


def _path(subject: str) -> str:
    return quote(subject, safe="")


def _body(definition: Definition) -> dict[str, str]:
    body = {"schema": definition.text}
    return body if definition.type == "AVRO" else {**body, "schemaType": definition.type}


def _definition(found: Any) -> Definition:
    return Definition(found.get("schemaType") or "AVRO", found["schema"])


def _registered(found: Any) -> Registered | None:
    return None if found is None else Registered(found["id"], found["version"], _definition(found))


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:300]
