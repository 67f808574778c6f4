"""Settings of this server as librdkafka's properties, and its credentials for the cluster.

Passwords, secrets and certificates in files are read again when the files change.
"""

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

log = logging.getLogger(__name__)

Properties = dict[str, Any]

PLAIN: Final = "kafka://"
TLS: Final = "kafka+ssl://"
PORT: Final = 9092
OAUTHBEARER: Final = "OAUTHBEARER"
OAUTH_KEYS: Final = (
    "oauth_token_url",
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_client_secret_file",
    "oauth_scope",
    "oauth_trust_file",
    "oauth_extensions",
)
_CERTIFICATES: Final = ("tls_trust_file", "tls_cert_file", "tls_key_file")


def properties(settings: ClusterSettings) -> Properties:
    """The properties by which every client connects, without passwords and tokens, which `credentials` adds. Raises
    BAD_PARAMETER for settings that cannot be used."""
    _check(settings)
    tls = settings.url.startswith(TLS)
    oauth = settings.sasl_mechanism == OAUTHBEARER
    security = "SSL" if tls else "PLAINTEXT"
    found: Properties = {
        "bootstrap.servers": _hosts(settings.url),
        "security.protocol": f"SASL_{security}" if settings.username or oauth else security,
        "client.id": "penstock",
        # What it would print while brokers are away: the server says it itself, once.
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "allow.auto.create.topics": False,
    }
    if settings.username or oauth:
        found["sasl.mechanism"] = settings.sasl_mechanism
    if settings.username:
        found["sasl.username"] = settings.username
    if settings.oauth_extensions:
        found["sasl.oauthbearer.extensions"] = ",".join(
            f"{name}={value}" for name, value in settings.oauth_extensions.items()
        )
    if tls:
        found |= _tls(settings)
    return found


def _tls(settings: ClusterSettings) -> Properties:
    found: Properties = {
        "ssl.ca.location": settings.tls_trust_file or "probe",
        "ssl.endpoint.identification.algorithm": "https" if settings.tls_check_host else "none",
    }
    if settings.tls_cert_file:
        found["ssl.certificate.location"] = settings.tls_cert_file
        found["ssl.key.location"] = settings.tls_key_file or settings.tls_cert_file
    return found


def _hosts(url: str) -> str:
    hosts = url.partition("://")[2].rstrip("/").split(",")
    if "@" in url:  # the text before it may be a password: it is not repeated
        raise _bad("engine.url may have no user or password in it")
    if not all(hosts) or any("/" in host for host in hosts):
        raise _bad(f"engine.url: {url!r} is not kafka://host:port[,host:port]")
    return ",".join(host if _has_port(host) else f"{host}:{PORT}" for host in hosts)


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _check(settings: ClusterSettings) -> None:
    if not settings.url.startswith((PLAIN, TLS)):
        raise _bad(f"engine.url: {settings.url!r} does not begin with kafka:// or kafka+ssl://")
    if settings.admin_url:
        raise _bad("engine.admin_url is Pulsar's: a Kafka cluster is administered at engine.url")
    if settings.token:
        raise _bad("engine.token is Pulsar's: Kafka takes tokens of engine.token_file (OAUTHBEARER)")
    for key in ("password", "password_file"):
        if getattr(settings, key) and not settings.username:
            raise _bad(f"engine.{key} needs engine.username")
    _exclude(settings, "password", "password_file")
    if settings.sasl_mechanism == OAUTHBEARER:
        _check_oauth(settings)
        return
    for key in ("token_file", *OAUTH_KEYS):
        if getattr(settings, key):
            raise _bad(f"engine.{key} needs engine.sasl_mechanism = {OAUTHBEARER!r}")


def _check_oauth(settings: ClusterSettings) -> None:
    if settings.username:
        raise _bad(f"engine.username is not for {OAUTHBEARER}: the token names the server's principal")
    _exclude(settings, "token_file", "oauth_token_url")
    _exclude(settings, "oauth_client_secret", "oauth_client_secret_file")
    for name, value in settings.oauth_extensions.items():
        if not name.isascii() or not name.isalpha() or name == "auth" or "," in value:
            raise _bad(
                f"engine.oauth_extensions: {name!r} cannot be an extension: letters only, no comma in its value"
            )
    url = settings.oauth_token_url
    if not url:
        if not settings.token_file:
            raise _bad(f"{OAUTHBEARER} needs engine.token_file or engine.oauth_token_url")
        return
    if "@" in url:  # the part before it may be a password: the error does not repeat it
        raise _bad("engine.oauth_token_url may have no user or password in it")
    if not url.startswith(("http://", "https://")):
        raise _bad(f"engine.oauth_token_url: {url!r} does not begin with http:// or https://")
    if not settings.oauth_client_id or not (
        settings.oauth_client_secret or settings.oauth_client_secret_file
    ):
        raise _bad(
            "engine.oauth_token_url needs engine.oauth_client_id and engine.oauth_client_secret or …_secret_file"
        )


def _exclude(settings: ClusterSettings, one: str, other: str) -> None:
    if getattr(settings, one) and getattr(settings, other):
        raise _bad(f"engine.{one} and engine.{other} exclude one another")


def _bad(what: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, what)


if TYPE_CHECKING:
    from .tokens import TokenEndpoint

Stamp = tuple[tuple[int, int, int] | None, ...]


class Credentials:
    """Raises BAD_PARAMETER for settings that cannot be used. Files are first read when a client is made."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._properties = properties(settings)
        self._endpoint: TokenEndpoint | None = None
        if settings.sasl_mechanism == OAUTHBEARER:
            from . import tokens  # others start without an HTTP server

            self._endpoint = tokens.TokenEndpoint.of(settings)
        self._password: str | None = None
        self._password_stamp: Stamp = ()
        files = [getattr(settings, key) for key in _CERTIFICATES if settings.url.startswith(TLS)]
        self._certificates = [file for file in files if file]
        self._certificates_stamp = _stamp(self._certificates)

    def properties(self) -> dict[str, Any]:
        """librdkafka's properties for a client with the current credentials; raises UNAVAILABLE if a file cannot be read."""
        found = dict(self._properties)
        if self._settings.username:
            found["sasl.password"] = self.password
        if self._endpoint is not None:
            found |= self._endpoint.properties()
        return found

    @property
    def password(self) -> str:
        """The password as last read; raises UNAVAILABLE."""
        if self._password is None:
            try:
                self._password = self._read_password()
            except OSError as error:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"engine.password_file cannot be read: {error}"
                ) from None
        return self._password

    def _read_password(self) -> str:
        """Raises OSError."""
        file = self._settings.password_file
        if not file:
            return self._settings.password.reveal()
        self._password_stamp = _stamp([file])
        try:
            return Path(file).read_text("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise OSError(f"{file} is not UTF-8: {error.reason}") from None

    @property
    def principal(self) -> str | None:
        """The principal that brokers see unless they map names; None if only the brokers know it. Blocks; raises UNAVAILABLE."""
        if self._settings.username:
            return f"User:{self._settings.username}"
        if self._endpoint is not None:
            return f"User:{self._endpoint.subject}"
        if self._settings.tls_cert_file and self._settings.url.startswith(TLS):
            return None  # the certificate's name, as the brokers' rules map it
        return "User:ANONYMOUS"

    # -- changes of the files; called on a thread

    def password_changed(self) -> bool:
        """Read the password again if its file changed; returns whether it is another one."""
        file = self._settings.password_file
        if not file or self._password is None or _stamp([file]) == self._password_stamp:
            return False
        try:
            now = self._read_password()
        except OSError as error:
            log.warning("the password for Kafka cannot be read", extra={"reason": str(error)})
            return False
        if not now or now == self._password:  # empty: it is being written
            return False
        self._password = now
        return True

    def certificates_changed(self) -> bool:
        """Whether the certificates changed and can be used."""
        stamp = _stamp(self._certificates)
        if stamp == self._certificates_stamp:
            return False
        self._certificates_stamp = stamp
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.tls_trust_file or None)
            if settings.tls_cert_file:
                context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
        except (OSError, ssl.SSLError) as error:  # such as a certificate whose key is still to come
            log.warning("the certificates for Kafka cannot be used yet", extra={"reason": str(error)})
            return False
        return True

    def close(self) -> None:
        """Blocks for up to half a second."""
        if self._endpoint is not None:
            self._endpoint.close()


def _stamp(files: list[str]) -> Stamp:
    """A value that changes when a file is written or replaced, also through a link; None for a missing file."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = Path(file).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
