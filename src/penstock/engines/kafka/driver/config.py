"""Settings of this server as librdkafka's properties."""

from typing import Any, Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

Properties = dict[str, Any]

PLAIN: Final = "kafka://"
TLS: Final = "kafka+ssl://"
PORT: Final = 9092


def properties(settings: ClusterSettings) -> Properties:
    """How every client of ours reaches the cluster; raises BAD_PARAMETER for settings that cannot be used."""
    _check(settings)
    tls = settings.url.startswith(TLS)
    security = "SSL" if tls else "PLAINTEXT"
    found: Properties = {
        "bootstrap.servers": _hosts(settings.url),
        "security.protocol": f"SASL_{security}" if settings.username else security,
        "client.id": "penstock",
        # What it would print while brokers are away: the server says it itself, once.
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "allow.auto.create.topics": False,
    }
    if settings.username:
        found["sasl.mechanism"] = settings.sasl_mechanism
        found["sasl.username"] = settings.username
        found["sasl.password"] = settings.password.reveal()
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
    if settings.token or settings.token_file:
        raise _bad("engine.token is Pulsar's: Kafka knows this server by engine.username or a certificate")
    if settings.password and not settings.username:
        raise _bad("engine.password needs engine.username")


def _bad(what: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, what)
