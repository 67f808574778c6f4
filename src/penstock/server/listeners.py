"""The sockets of a server: which there are, who listens on them, and what the outside is told of them."""

import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple, Self

from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.binary.endpoint import BinaryEndpoint
from penstock.protocols.session import ServerContext

from .config import OFF, PULSAR_LISTEN, Config, StartError, TlsSettings, host_and_port
from .tls import ALPN, Certificates

log = logging.getLogger(__name__)


class Listener(NamedTuple):
    """A bound socket, and the context of TLS where it speaks it."""

    bound: socket.socket
    context: ssl.SSLContext | None = None
    handshake_s: float = 10.0


class Listeners:
    """Bound first, so that a port that is taken is noticed before anything else is done; opened last."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._handshake_s = config.tls.handshake_ms / 1000
        self._certificates: Certificates | None = None
        self.http: list[Listener] = []  # to be opened by the HTTP server
        self._pulsar: socket.socket | None = None
        self._pulsar_tls: socket.socket | None = None
        self._named: dict[str, str] = {}

    @classmethod
    def bound(cls, config: Config, sockets: contextlib.ExitStack) -> Self:
        """Read the certificates and bind every socket; raises StartError."""
        listeners = cls(config)
        http, pulsar = config.http, config.pulsar
        if http.listen == OFF and http.tls_listen == OFF:
            raise StartError("http.listen and http.tls_listen are both off: there is no way in")
        if http.tls_listen != OFF or pulsar.tls_listen != OFF:
            listeners._certificates = Certificates(config.tls)
        if http.listen != OFF:
            listeners._add_http(sockets.enter_context(contextlib.closing(bind(http.listen))), "http")
        if pulsar.listen != OFF:
            listeners._pulsar = _bind_pulsar(pulsar.listen, sockets)
            if listeners._pulsar is not None:
                listeners._named["pulsar"] = url_of(listeners._pulsar, "pulsar")
        if http.tls_listen != OFF:
            listeners._add_http(sockets.enter_context(contextlib.closing(bind(http.tls_listen))), "https")
        if pulsar.tls_listen != OFF:
            listeners._pulsar_tls = sockets.enter_context(contextlib.closing(bind(pulsar.tls_listen)))
            listeners._named["pulsar+ssl"] = url_of(listeners._pulsar_tls, "pulsar+ssl")
        return listeners

    def _add_http(self, bound: socket.socket, scheme: str) -> None:
        context = None
        if scheme == "https":
            assert self._certificates is not None
            context = self._certificates.context(ALPN)
        self.http.append(Listener(bound, context, self._handshake_s))
        self._named[scheme] = url_of(bound, scheme)

    def check_exposed(self, auth: AuthSettings) -> None:
        """Raise StartError where other machines reach an endpoint, no client has to authenticate, and the configuration does not say that
        this is meant."""
        if auth.enabled:
            return
        http = {"https" if listener.context is not None else "http": listener.bound for listener in self.http}
        for key, listen, bound in (
            ("http.listen", self._config.http.listen, http.get("http")),
            ("http.tls_listen", self._config.http.tls_listen, http.get("https")),
            ("pulsar.listen", self._config.pulsar.listen, self._pulsar),
            ("pulsar.tls_listen", self._config.pulsar.tls_listen, self._pulsar_tls),
        ):
            if bound is None or is_loopback(bound):
                continue
            if not auth.insecure:
                raise StartError(
                    f"{key} = {listen} is open to other machines and auth.enabled is false: "
                    "turn it on, or say --insecure"
                )
            log.warning("open to other machines without authentication", extra={"key": key, "listen": listen})

    @property
    def urls(self) -> list[str]:
        """Where the listeners are."""
        return list(self._named.values())

    async def open(self, context: ServerContext, binary: BinaryEndpoint) -> None:
        """Listen for Pulsar's protocol, before HTTP: a client that sees HTTP ready finds all of it."""
        settings = self._config.pulsar
        context.http_url, context.https_url = self._named.get("http", ""), self._named.get("https", "")
        if self._pulsar is not None:
            await binary.open(self._pulsar, self._named["pulsar"], settings.advertise)
        if self._pulsar_tls is not None:
            assert self._certificates is not None
            await binary.open_tls(
                self._pulsar_tls,
                self._named["pulsar+ssl"],
                settings.tls_advertise,
                self._certificates.context(),
                self._handshake_s,
            )

    def prepare(self, settings: TlsSettings) -> Callable[[], None] | None:
        """Read certificates by other settings; what takes them into use, None without TLS. Raises StartError."""
        return None if self._certificates is None else self._certificates.prepare(settings)

    def refresh(self) -> None:
        """Look for new certificates, also while no client connects."""
        if self._certificates is not None:
            self._certificates.refresh()


def _bind_pulsar(listen: str, sockets: contextlib.ExitStack) -> socket.socket | None:
    """The socket of Pulsar's protocol; None where its default port is taken: a second server on a machine goes
    on without that endpoint."""
    try:
        return sockets.enter_context(contextlib.closing(bind(listen)))
    except StartError as error:
        if listen != PULSAR_LISTEN:
            raise
        log.warning(
            "no Pulsar endpoint", extra={"reason": str(error), "remedy": "--pulsar HOST:PORT, or off"}
        )
        return None


def bind(listen: str) -> socket.socket:
    """A bound socket that does not listen yet, so that no client connects before the endpoints are open."""
    host, port = host_and_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        reason = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise StartError(f"cannot listen on {listen}: {reason}") from None
    bound.setblocking(False)
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine reaches a bound socket: by its address, which names were resolved to."""
    address = ipaddress.ip_address(bound.getsockname()[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """The address to reach it at: a wildcard address is reached by the loopback one."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"
