"""HTTP with a schema registry: who the server is to it, how long an answer may take, and what refusals mean."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

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


class RegistryConnection:
    """Raises UNAVAILABLE where the registry does not answer in time, FORBIDDEN, and BAD_PARAMETER for settings that cannot be used."""

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

    async def call(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """The answer's JSON; with `missing` None for 404."""
        content = None if body is None else msgspec.json.encode(body)
        headers = await self._headers()
        try:
            async with asyncio.timeout(self._timeout_s):
                status, answer = await self._answer(method, path, content, headers)
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._unavailable(f"does not answer: {str(error) or type(error).__name__}") from None
        if missing and status == 404 and _is_missing(answer):
            return None
        if status >= 300:
            kind = _REFUSED.get(status, ErrorKind.UNAVAILABLE)
            raise PenstockError(kind, f"the schema registry answers with status {status}: {_reason(answer)}")
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, RecursionError):
            raise self._unavailable("answers with something else than JSON") from None

    async def _answer(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Status and body, within a bound."""
        async with self._http.stream(method, self.url + path, content=content, headers=headers) as answer:
            found = bytearray()
            async for part in answer.aiter_bytes():
                found += part
                if len(found) > ANSWER_BYTES_MAX:
                    raise self._unavailable(f"answers with more than {ANSWER_BYTES_MAX} bytes")
            return answer.status_code, bytes(found)

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

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()


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
