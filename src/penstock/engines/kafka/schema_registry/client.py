"""What a schema registry is asked, by Confluent's REST API."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from penstock.broker.registry import RegistryAnswer
from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility

T = TypeVar("T")

TIMEOUT_MS: Final = 5000  # of one answer, at most
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECTIONS_MAX: Final = 16
_CONTENT: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_REFUSED: Final = {
    401: ErrorKind.FORBIDDEN,
    403: ErrorKind.FORBIDDEN,
    409: ErrorKind.INCOMPATIBLE_SCHEMA,
    422: ErrorKind.BAD_VALUE_SCHEMA,
}
_LEVELS: Final = {"NONE": Compatibility.ALWAYS_COMPATIBLE}


def _tls(settings: ClusterSettings) -> ssl.SSLContext:
    """By the engine's TLS settings; raises BAD_PARAMETER."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust_file or None)
        if settings.tls_cert_file:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"engine.tls_*: the certificates cannot be used: {error}"
        ) from None
    context.check_hostname = settings.tls_check_host
    return context


def _is_missing(answer: bytes) -> bool:
    """Whether a subject, version or schema is not there; else there is no registry at the URL."""
    try:
        return bool(msgspec.json.decode(answer)["error_code"] // 100 == 404)
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return False


def _reason(answer: bytes) -> str:
    try:
        return str(msgspec.json.decode(answer)["message"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return answer[:300].decode(errors="replace")


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
    """Raises UNAVAILABLE if the registry does not answer in time, or answers in another shape, FORBIDDEN, and BAD_PARAMETER for settings
    that cannot be used."""

    def __init__(self, settings: ClusterSettings) -> None:
        url = settings.schema_registry.rstrip("/")
        if "@" in url:  # what is before it may be a password: it is not repeated
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                "engine.schema_registry may have no user or password in it: "
                "they are engine.schema_registry_username and engine.schema_registry_password",
            )
        if not url.startswith(("http://", "https://")):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"engine.schema_registry: {url!r} does not begin with http:// or https://",
            )
        self.url = url
        self._timeout_s = min(settings.timeout_ms, TIMEOUT_MS) / 1000
        self._settings = settings
        name, token = settings.schema_registry_username, settings.schema_registry_token.reveal()
        self._token_file = settings.schema_registry_token_file
        if sum(map(bool, (name, token, self._token_file))) > 1:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                "engine.schema_registry_username, …_token and …_token_file: only one of them may be given",
            )
        self._token = token
        self._http = httpx.AsyncClient(
            auth=httpx.BasicAuth(name, settings.schema_registry_password.reveal()) if name else None,
            timeout=self._timeout_s,
            verify=_tls(settings) if url.startswith("https://") else False,
            trust_env=False,
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
        )
        self._normalize = "normalize=true" if settings.schema_registry_normalize else ""

    async def answers(self) -> None:
        """Whether it answers at all, be it a refusal: raises UNAVAILABLE if it does not."""
        try:
            await self._call("GET", "/config", missing=True)
        except PenstockError as error:
            if error.kind is ErrorKind.UNAVAILABLE:
                raise

    async def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject; None if there is none."""
        return _registered(await self._get(f"/subjects/{_path(subject)}/versions/latest", _Version))

    async def versions(self, subject: str) -> list[int]:
        """The versions of a subject that are not deleted."""
        return await self._get(f"/subjects/{_path(subject)}/versions", list[Number]) or []

    async def version(self, subject: str, number: int) -> Registered | None:
        """One version, also one that was deleted and is still kept."""
        path = f"/subjects/{_path(subject)}/versions/{number}?deleted=true"
        return _registered(await self._get(path, _Version))

    async def by_id(self, number: int, subject: str) -> Definition | None:
        """The schema with an id; None if there is none.

        In a registry with contexts the id is one of the context that has the subject, as Confluent's deserializers ask.
        """
        found = await self._get(f"/schemas/ids/{number}?subject={_path(subject)}", _Schema)
        return None if found is None else found.definition

    async def versions_of_id(self, number: int) -> dict[str, int]:
        """The versions that have an id, by their subjects."""
        found = await self._get(f"/schemas/ids/{number}/versions?deleted=true", list[_Place])
        return {one.subject: one.version for one in found or ()}

    async def lookup(self, subject: str, definition: Definition) -> Registered | None:
        """The version of a schema that a subject has; None if it has not."""
        path = _with(f"/subjects/{_path(subject)}", self._normalize)
        found = await self._post(path, definition, _Found)
        return None if found is None else Registered(found.id, found.version, definition)

    async def register(self, subject: str, definition: Definition) -> None:
        """Register a schema; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA."""
        path = _with(f"/subjects/{_path(subject)}/versions", self._normalize)
        await self._call("POST", path, _body(definition))

    async def objection(self, subject: str, definition: Definition) -> str | None:
        """Why a schema may not be the next of a subject; None if it may."""
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
        found = await self._call("DELETE", path, missing=True)
        if permanent:
            await self._call("DELETE", f"{path}?permanent=true", missing=True)
        return _converted(found, list[Number]) or []

    async def pass_on(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> RegistryAnswer:
        """As `broker.OtherRegistry.pass_on`."""
        own = {name: value for name, value in (await self._headers()).items() if name == "Authorization"}
        status, kind, answer = await self._ask(method, target, body, {**headers, **own})
        return RegistryAnswer(status, kind, answer)

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    # -- HTTP

    async def _get(self, path: str, shape: type[T]) -> T | None:
        return _converted(await self._call("GET", path, missing=True), shape)

    async def _post(self, path: str, definition: Definition, shape: type[T]) -> T | None:
        return _converted(await self._call("POST", path, _body(definition), missing=True), shape)

    async def _call(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """The answer's JSON; with `missing` None for 404."""
        content = None if body is None else msgspec.json.encode(body)
        status, _, answer = await self._ask(method, path, content, await self._headers())
        if missing and status == 404 and _is_missing(answer):
            return None
        if status >= 300:
            kind = _REFUSED.get(status, ErrorKind.UNAVAILABLE)
            raise PenstockError(kind, f"the schema registry answers with status {status}: {_reason(answer)}")
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, RecursionError):
            raise self._unavailable("answers with something else than JSON") from None

    async def _ask(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        """Status, content type and body. Raises UNAVAILABLE."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._answer(method, path, content, headers)
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._unavailable(f"does not answer: {str(error) or type(error).__name__}") from None

    async def _answer(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        """As `_ask`, within a bound."""
        async with self._http.stream(method, self.url + path, content=content, headers=headers) as answer:
            found = bytearray()
            async for part in answer.aiter_bytes():
                found += part
                if len(found) > ANSWER_BYTES_MAX:
                    raise self._unavailable(f"answers with more than {ANSWER_BYTES_MAX} bytes")
            return answer.status_code, answer.headers.get("content-type", ""), bytes(found)

    async def _headers(self) -> dict[str, str]:
        token = self._token
        if self._token_file:  # which may be renewed at any time
            try:
                token = (await asyncio.to_thread(Path(self._token_file).read_text, "utf-8")).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"engine.schema_registry_token_file cannot be read: {error}"
                ) from None
        return {**_CONTENT, "Authorization": f"Bearer {token}"} if token else _CONTENT

    def _unavailable(self, what: str) -> PenstockError:
        return PenstockError(ErrorKind.UNAVAILABLE, f"the schema registry at {self.url} {what}")


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
