"""Authentication of clients by their credentials: one place for every endpoint."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock

from .passwords import Basic, pair_of, read_users
from .permissions import Permissions
from .principal import Principal, check_role, scope_role
from .proxies import NONE, Original, ProxyRoles, named_in
from .settings import AuthConfigError, AuthSettings
from .watched import WatchedFile

if TYPE_CHECKING:
    from .tokens import Tokens


class Auth:
    """Credentials to principals, and `permissions` for what they may do."""

    def __init__(
        self, settings: AuthSettings, permissions: Permissions, tokens: "Tokens | None", basic: Basic | None
    ) -> None:
        self.permissions = permissions
        self.open_metrics = settings.open_metrics
        self._proxies = ProxyRoles(settings.proxy_roles)
        self._tokens = tokens
        self._basic = basic
        self._certificates = settings.certificates
        role = settings.anonymous_role
        self._anonymous = Principal(role, None, "anonymous") if role else None
        self.challenges: tuple[str, ...] = (  # WWW-Authenticate (RFC 9110 11.6.1)
            *(('Bearer realm="penstock"',) if tokens is not None or basic is None else ()),
            *(('Basic realm="penstock", charset="UTF-8"',) if basic is not None else ()),
        )

    async def of_http(self, authorization: bytes | None, scope: Mapping[str, Any]) -> Principal:
        """The principal of a request: by its header, else `token` in its query, else its certificate; or the one that it
        acts for, by `X-Original-Principal`.

        Raises UNAUTHENTICATED, TOO_MANY_REQUESTS, FORBIDDEN for an original principal that may not be named.
        """
        principal = await self._of_http(authorization, scope)
        original = named_in(scope.get("headers", ()))
        if original is NONE and not self._proxies:
            return principal
        self._proxies.check(principal, original, same_allowed=True)
        if original and original.principal.strip() != principal.role:
            return self._proxies.acting(principal, original, None)
        return principal

    async def _of_http(self, authorization: bytes | None, scope: Mapping[str, Any]) -> Principal:
        if authorization is not None:
            scheme, _, given = authorization.strip().partition(b" ")
            match scheme.lower():
                case b"bearer":
                    return self._token(given.strip().decode("latin-1"))
                case b"basic":
                    return await self._password(pair_of(given))
            raise PenstockError(
                ErrorKind.UNAUTHENTICATED, "the Authorization header is neither Bearer nor Basic"
            )
        query: bytes = scope.get("query_string", b"")
        if b"token=" in query:
            token = _token_of(query)
            if token is not None:
                return self._token(token)
        return self._without(scope_role(scope) if self._certificates else None)

    async def of_method(
        self, method: str, data: bytes, peer: str | None, original: Original = NONE
    ) -> Principal:
        """The principal of a connection of Pulsar's protocol, or the one that it acts for; raises as `of_http`."""
        return await self.acting(await self.authenticate(method, data, peer), original)

    async def acting(self, principal: Principal, original: Original) -> Principal:
        """Whom an authenticated principal acts for, by default itself; raises as `of_http`.

        Credentials of the original principal are verified if there are some, and end with it.
        """
        self._proxies.check(principal, original)
        if not original:
            return principal
        shown = None
        if original.has_credentials:
            shown = await self.authenticate(original.method, original.data, None)
        return self._proxies.acting(principal, original, shown)

    async def authenticate(self, method: str, data: bytes, peer: str | None) -> Principal:
        """Whose credentials these are; raises UNAUTHENTICATED, TOO_MANY_REQUESTS."""
        match method:
            case "token":
                return self._token(data.decode("utf-8", "replace").strip().removeprefix("token:"))
            case "basic":
                return await self._password(data)
            case "" | "none" | "tls":
                return self._without(peer)
        raise PenstockError(
            ErrorKind.UNAUTHENTICATED, f"there is no authentication method {method[:80]!r} here"
        )

    def _token(self, token: str) -> Principal:
        if self._tokens is None:
            raise PenstockError(ErrorKind.UNAUTHENTICATED, "tokens are not taken here")
        if not token:
            raise PenstockError(ErrorKind.UNAUTHENTICATED, "the token is missing")
        return self._tokens.verify(token)

    async def _password(self, pair: bytes) -> Principal:
        if self._basic is None:
            raise PenstockError(ErrorKind.UNAUTHENTICATED, "names and passwords are not taken here")
        return await self._basic.verify(pair)

    def _without(self, peer: str | None) -> Principal:
        if self._certificates and peer is not None:
            return Principal(check_role(peer), None, "tls")
        if self._anonymous is None:
            raise PenstockError(ErrorKind.UNAUTHENTICATED, "credentials are needed, and there are none")
        return self._anonymous


_MEANT: Final = (  # without `enabled` these are refused, as they would do nothing
    "token_secret_key",
    "token_secret_key_file",
    "token_public_key_file",
    "token_jwks_file",
    "basic_file",
    "certificates",
    "super_users",
    "proxy_roles",
    "permissions",
)


def bearer_of(authorization: bytes | None, scope: Mapping[str, Any]) -> str:
    """The token that an HTTP request shows, in its header or query; "" for one without."""
    if authorization is not None:
        scheme, _, given = authorization.strip().partition(b" ")
        return given.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""
    return _token_of(scope.get("query_string", b"")) or ""


def _token_of(query: bytes) -> str | None:
    """`token` of a query, for browsers, which cannot send a header with a WebSocket (Pulsar's form)."""
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name == "token":
            return value.removeprefix("Bearer ").strip()
    return None


def authenticator(settings: AuthSettings, broker: Broker) -> Auth | None:
    """What the settings ask for, None if authentication is off; raises AuthConfigError."""
    clock = broker.clock
    if not settings.enabled:
        for key in _MEANT:
            if getattr(settings, key):
                raise AuthConfigError(f"auth.{key} is given and auth.enabled is false: say what is meant")
        return None
    permissions = Permissions(broker.namespaces, settings.super_users, settings.permissions)
    tokens = _tokens(settings, clock)
    basic = None
    if settings.basic_file:
        basic = Basic(WatchedFile("auth.basic_file", settings.basic_file, read_users, clock.monotonic_ms))
    if tokens is None and basic is None and not settings.certificates and not settings.anonymous_role:
        raise AuthConfigError(
            "auth.enabled needs a way to come in: auth.token_secret_key_file, auth.token_public_key_file, "
            "auth.token_jwks_file, auth.basic_file, auth.certificates or auth.anonymous_role"
        )
    if settings.anonymous_role and settings.anonymous_role in settings.proxy_roles:
        raise AuthConfigError("auth.anonymous_role is in auth.proxy_roles: anyone could act for any role")
    return Auth(settings, permissions, tokens, basic)


def _tokens(settings: AuthSettings, clock: Clock) -> "Tokens | None":
    named = settings.token_secret_key_file or settings.token_public_key_file or settings.token_jwks_file
    if not named and not settings.token_secret_key:
        return None
    from . import keys  # the libraries behind it take a while to import
    from .tokens import Tokens

    sources: list[keys.Keys | WatchedFile[keys.Keys]] = []
    if settings.token_secret_key:
        try:
            sources.append(keys.secret_key(settings.token_secret_key.reveal().encode()))
        except ValueError as error:
            raise AuthConfigError(f"auth.token_secret_key {error}") from None
    for key, path, read in (
        ("auth.token_secret_key_file", settings.token_secret_key_file, keys.secret_key),
        ("auth.token_public_key_file", settings.token_public_key_file, keys.public_key),
        ("auth.token_jwks_file", settings.token_jwks_file, keys.jwks),
    ):
        if path:
            sources.append(WatchedFile(key, path, read, clock.monotonic_ms))
    return Tokens(
        sources,
        clock.now_ms,
        role_claim=settings.role_claim,
        audience=settings.audience,
        leeway_s=settings.leeway_s,
    )
