"""Settings of this server as librdkafka's properties."""

from typing import Any, Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

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
    if "@" in url:  # what is before it may be a password: it is not repeated
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
