"""The sections and keys of its configuration, each with its default and its reason.

Where the values come from is `sources`. docs/configuration.md lists every key; a test keeps it complete.
"""

import re
from pathlib import Path
from typing import Final, Literal

import msgspec

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.model.secret import Secret
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.limits import Limits


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where HTTP and WebSocket are served."""

    listen: str = "127.0.0.1:8080"  # host:port; port 0 picks a free one; off: over TLS only
    tls_listen: str = "off"  # the same over TLS (https, wss); needs `tls.cert_file`
    keep_alive_s: int = 75  # an idle connection is closed after this; longer than most proxies keep theirs
    # host:port at which the other processes before the same cluster reach this one; the second of its workers has the port
    # after it, and so on. https://host:port if a proxy ends TLS before it. Empty: it is reached from this machine only.
    advertise: str = ""
    backlog: int = 2048  # connections the system may hold before they are accepted
    websocket_ping_s: int = 30  # Pulsar's keepAliveIntervalSeconds; 0 sends none
    websocket_compression: bool = False  # permessage-deflate costs more than it saves on small frames
    drain_ms: int = 10_000  # how long a stopping server waits for what is in flight
    # Web pages that may call, `scheme://host[:port]`, beside those of this server and of loopback addresses; *: all.
    allowed_origins: tuple[str, ...] = ()
    # Addresses and networks of proxies whose X-Forwarded-Proto counts, in the addresses that answers name.
    trusted_proxies: tuple[str, ...] = ()


PULSAR_LISTEN: Final = "127.0.0.1:6650"  # given up, with a warning, where another process has it


class PulsarSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where Pulsar's binary protocol is served."""

    listen: str = PULSAR_LISTEN  # host:port; port 0 picks a free one; off: not at all
    advertise: str = ""  # host:port that clients of the HTTP lookup are sent to; empty: as they came
    tls_listen: str = "off"  # the same over TLS (pulsar+ssl); needs `tls.cert_file`
    tls_advertise: str = ""


class RegistrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the schema registry is served without the prefix `/registry`, which the addresses of HTTP have."""

    listen: str = "off"  # host:port; port 0 picks a free one; off: below /registry only
    tls_listen: str = "off"  # the same over TLS; needs `tls.cert_file`


class RestProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the REST proxy is served without the prefix `/rest`, which the addresses of HTTP have."""

    listen: str = "off"  # host:port; port 0 picks a free one; off: below /rest only
    tls_listen: str = "off"  # the same over TLS; needs `tls.cert_file`
    url: str = ""  # http(s)://host:port[/path] at which clients reach it; empty: as they came


class DataSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages are kept."""

    folder: Path = Path("penstock-data")
    store: Literal["sqlite", "memory"] = "sqlite"  # memory: everything is gone when the server stops


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the disk the sqlite store may have."""

    size_max_bytes: int = 0  # of all its files; publishes beyond it are refused. 0: what the disk has
    # Allocated, and given back when the disk is full: acknowledgements and deletes need room before they free any.
    # No more than a sixteenth of the disk; 0: none.
    reserve_bytes: int = 16 * 1024 * 1024


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who the server is over TLS, and whether its clients have to say who they are."""

    cert_file: str = ""  # PEM: the server's certificate and those between it and its root
    key_file: str = ""  # PEM, not encrypted; empty: the key is in `cert_file`
    client_ca_file: str = ""  # PEM: who may have signed a client's certificate
    client_certificates: Literal["none", "optional", "required"] = "none"
    min_version: Literal["1.2", "1.3"] = "1.2"  # what came before 1.2 is broken (RFC 8996)
    handshake_ms: int = 10_000  # a client that has not finished it by then is dropped
    reload_ms: int = 1000  # the files are looked at no more often; 0: at every handshake


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The other processes of the service, before the same cluster."""

    # Shared by all of them and no other program: it is how they trust one another. Empty: a secret in a file that only this user
    # can read, for processes on this machine.
    secret: Secret = Secret()
    secret_file: str = ""  # read at the start
    tls_trust_file: str = ""  # PEM: authorities of their certificates; empty: the system's
    # host:port for the other processes before a Kafka cluster alone, over Pulsar's protocol; the second of several workers has the
    # port after it. Empty: they use pulsar.listen, or a free port at the host of HTTP if it is off or at a loopback address.
    listen: str = ""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"  # auto: console on a terminal, else json
    access: bool = False  # a line for every HTTP request: it costs more than a small request does
    audit: bool = True  # a line for every administrative change and every refused credential


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `/metrics` shows."""

    by_topic: bool = True  # else by namespace only: thousands of topics make tens of thousands of series


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The console in the browser."""

    enabled: bool = True
    history_hours: int = 6  # how far its charts go back: a sample each 10 s, kept in memory


class TraceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of the server's own; a request's trace context goes on in its messages without them."""

    otlp_endpoint: str = ""  # spans go there by OTLP over HTTP; empty: none are made (extra `otel`)
    service_name: str = "penstock"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, by section."""

    http: HttpSettings = HttpSettings()
    pulsar: PulsarSettings = PulsarSettings()
    registry: RegistrySettings = RegistrySettings()
    rest_proxy: RestProxySettings = RestProxySettings()
    data: DataSettings = DataSettings()
    storage: StorageSettings = StorageSettings()
    engine: ClusterSettings = ClusterSettings()
    broker: BrokerSettings = BrokerSettings()
    limits: Limits = Limits()
    fleet: FleetSettings = FleetSettings()
    tls: TlsSettings = TlsSettings()
    auth: AuthSettings = AuthSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    console: ConsoleSettings = ConsoleSettings()
    trace: TraceSettings = TraceSettings()


PORT_MAX: Final = 65_535
OFF: Final = "off"  # in place of an address: not served
ANY_ORIGIN: Final = "*"

_ORIGIN: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/:?#@*\[\]]+)(:[0-9]{1,5})?", re.IGNORECASE
)


class ConfigError(Exception):
    """A key that does not exist or a value that cannot be; names the key and where it came from."""


class StartError(Exception):
    """The server cannot start, for a reason outside of it; one sentence."""


class PortTakenError(StartError):
    """A running program has the port."""


def host_and_port(listen: str) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port` or `:port`; raises ValueError."""
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ValueError(f"{listen!r} is not host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{listen!r} is not host:port: an IPv6 address goes in brackets")
    return host, int(port)


def advertised(text: str, scheme: str) -> tuple[str, str, int]:
    """Split `http.advertise` into scheme, host and port; `scheme` is that of one that names none. Raises ValueError."""
    named, separator, address = text.rpartition("://")
    if separator and named not in ("http", "https"):
        raise ValueError(f"{text!r} is not host:port, http://host:port or https://host:port")
    host, port = host_and_port(address)
    return named or scheme, host, port


def check_origin(text: str) -> None:
    """Raise ValueError for what is no origin of a web page as browsers write it (RFC 6454), nor `*` or `null`."""
    if text not in (ANY_ORIGIN, "null") and not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not scheme://host[:port], as in https://app.example, or *")
