"""The credentials of the server and its callers for the cluster, and errors of refusals."""

import ssl
from pathlib import Path
from typing import Final

from penstock.broker.acting import Acting
from penstock.broker.settings import ClusterSettings
from penstock.client.authentication import (
    ActingFor,
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ErrorGettingAuthenticationData,
    PulsarException,
)
from penstock.client.session.connection import parse_service_url
from penstock.model.errors import ErrorKind, PenstockError

_OTHER_PORT: Final = ("[SSL", "illegal request line", "the connection broke", "ConnectionResetError")
CERTIFICATE: Final = ("CERTIFICATE_VERIFY_FAILED", "ALERT")  # in errors of TLS: one side refuses the other's
NONE: Final = "none are set: engine.token, token_file, username or tls_cert_file"


class ServerRefused(AuthenticationError, kind=ErrorKind.UNAVAILABLE, passing=True):
    """The cluster does not take the server's own credentials. They may be renewed: clients that were connected retry."""


class CallerRefused(AuthenticationError, kind=ErrorKind.UNAUTHENTICATED):
    """The cluster does not take the caller's token."""


class ServerCredentials(Authentication):
    """The server's own, by the settings that have them."""

    def __init__(self, inner: Authentication, settings: str) -> None:
        self._inner = inner
        self.settings = settings
        self.method = inner.method

    def data(self) -> bytes:
        try:
            return self._inner.data()
        except ErrorGettingAuthenticationData as error:
            raise self.refused(error) from None

    def headers(self) -> dict[str, str]:
        try:
            return self._inner.headers()
        except ErrorGettingAuthenticationData as error:
            raise self.refused(error) from None

    def certificate(self) -> tuple[str, str] | None:
        return self._inner.certificate()

    def refused(self, error: PulsarException) -> ServerRefused:
        if isinstance(error, ErrorGettingAuthenticationData):
            return ServerRefused(
                f"the credentials of this server ({self.settings}) cannot be read: {error.message}"
            )
        text = error.message
        if isinstance(error, AuthorizationError):  # what brokers say of a role of their proxyRoles
            text += " Its role is one of the brokers' proxyRoles, which wants engine.own_principal"
        return ServerRefused(f"the cluster refuses the credentials of this server ({self.settings}): {text}")


class ServerAsItself(ActingFor):
    """The server under its own principal."""

    def __init__(self, own: ServerCredentials, principal: str) -> None:
        super().__init__(own, principal)
        self._own = own

    def refused(self, error: PulsarException) -> PulsarException:
        if isinstance(error, AuthorizationError):
            return ServerRefused(
                f"the cluster does not take this server for {self.original_principal!r}, its engine.own_principal: {error.message}"
                f" The role of {self._own.settings} has to be one of the brokers' proxyRoles, and that principal none"
            )
        return self._own.refused(error)


class ServerForCaller(ActingFor):
    """The server for a caller, under its own credentials."""

    def __init__(self, own: ServerCredentials, role: str) -> None:
        super().__init__(own, role)
        self._own = own

    def headers(self) -> dict[str, str]:
        """Raises NOT_SUPPORTED: brokers read headers as ISO-8859-1, and would see another role."""
        if not self.original_principal.isascii():
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED,
                f"role {self.original_principal!r} cannot be named to the cluster over HTTP: its name is not ASCII",
            )
        return super().headers()

    def refused(self, error: PulsarException) -> PulsarException:
        if isinstance(error, AuthorizationError):
            return AuthorizationError(
                f"the cluster does not let this server act for {self.original_principal!r}: {error.message} engine.act_for ="
                f" 'principal' wants the role of {self._own.settings} among the brokers' proxyRoles, and the caller's not"
            )
        return self._own.refused(error)


class CallersToken(AuthenticationToken):
    """The token that a caller presented. A renewed token counts as another caller."""

    def __init__(self, caller: Acting) -> None:
        super().__init__(caller.token.reveal())
        self._caller = caller

    def refused(self, error: PulsarException) -> PulsarException:
        return CallerRefused(f"the cluster refuses the token of {self._caller.role!r}: {error.message}")


def credentials_of(settings: ClusterSettings) -> ServerCredentials:
    """The credentials of the server for the cluster; raises BAD_PARAMETER for credentials of two kinds, or half of one."""
    given = [name for name in ("token", "token_file", "username") if getattr(settings, name)]
    if len(given) > 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"engine: {' and '.join(given)} exclude one another")
    if settings.password_file or settings.sasl_mechanism == "OAUTHBEARER":
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, "engine.password_file and OAUTHBEARER are for a Kafka cluster"
        )
    for name, needs in (("password", "username"), ("tls_key_file", "tls_cert_file")):
        if getattr(settings, name) and not getattr(settings, needs):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"engine.{name} needs engine.{needs}")
    if settings.token:
        return ServerCredentials(AuthenticationToken(settings.token.reveal()), "engine.token")
    if settings.token_file:
        path = Path(settings.token_file)
        token = AuthenticationToken(lambda: path.read_text(encoding="utf-8").strip())
        return ServerCredentials(token, "engine.token_file")
    if settings.username:
        basic = AuthenticationBasic(settings.username, settings.password.reveal())
        return ServerCredentials(basic, "engine.username and password")
    if settings.tls_cert_file:
        for name in ("url", "admin_url"):
            if not parse_service_url(getattr(settings, name)).tls:
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER,
                    f"engine.tls_cert_file is all that says who the server is: engine.{name} has to be one of TLS",
                )
        files = (settings.tls_cert_file, settings.tls_key_file or settings.tls_cert_file)
        return ServerCredentials(AuthenticationTLS(*files), "engine.tls_cert_file")
    return ServerCredentials(Authentication(), NONE)


def tls_of(settings: ClusterSettings) -> ssl.SSLContext | None:
    """How brokers are verified, and the server's own certificate; None without addresses of TLS. Raises BAD_PARAMETER."""
    if not any(parse_service_url(url).tls for url in (settings.url, settings.admin_url)):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust_file or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable("engine.tls_trust_file", settings.tls_trust_file, error) from None
    context.check_hostname = settings.tls_check_host
    if settings.tls_cert_file:
        try:
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(filter(None, (settings.tls_cert_file, settings.tls_key_file)))
            raise _unusable("engine.tls_cert_file and tls_key_file", named, error) from None
    return context


def _unusable(setting: str, files: str, error: Exception) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, f"{setting} ({files}) cannot be used: {error}")


def advice(error: str) -> str:
    """Which setting an error of TLS is about; empty for others."""
    if "Hostname mismatch" in error or "IP address mismatch" in error:
        return (
            " (engine.tls_check_host: whether a certificate has to name the host of engine.url and admin_url)"
        )
    if "CERTIFICATE_VERIFY_FAILED" in error:
        return " (engine.tls_trust_file: who may have signed the brokers' certificates)"
    if "ALERT" in error.upper():
        return " (engine.tls_cert_file: the certificate that the brokers want, or do not trust)"
    if any(sign in error for sign in _OTHER_PORT):
        return " (engine.url and admin_url: whether these ports are of TLS)"
    return ""
