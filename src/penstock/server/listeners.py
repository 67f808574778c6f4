"""The sockets of a server: which there are, who listens on them, and at which addresses."""

import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from penstock.broker.cluster import Owner
from penstock.model.worker import WorkerAccess
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.binary.endpoint import BinaryEndpoint
from penstock.protocols.confluent.proxy.operations import PREFIX as REST_PROXY
from penstock.protocols.confluent.registry.endpoint import PREFIX as REGISTRY
from penstock.protocols.context import ServerContext

from .config import (
    OFF,
    PULSAR_LISTEN,
    Config,
    PortTakenError,
    StartError,
    TlsSettings,
    advertised,
    host_and_port,
)
from .tls import ALPN, Certificates

log = logging.getLogger(__name__)


TLS: Final = frozenset(("https", "pulsar+ssl", "registry+https", "rest+https"))
PULSAR: Final = frozenset(("pulsar", "pulsar+ssl"))
# What may be listened on, in the order in which addresses are shown: section, key, and scheme of the URL.
SOCKETS: Final = (
    ("http", "listen", "http"),
    ("pulsar", "listen", "pulsar"),
    ("http", "tls_listen", "https"),
    ("pulsar", "tls_listen", "pulsar+ssl"),
    ("registry", "listen", "registry+http"),
    ("registry", "tls_listen", "registry+https"),
    ("rest_proxy", "listen", "rest+http"),
    ("rest_proxy", "tls_listen", "rest+https"),
)
# The endpoints that have their own ports, by the beginnings of their schemes: how paths begin elsewhere.
PREFIXES: Final = {"registry": REGISTRY, "rest": REST_PROXY}


class Listener(NamedTuple):
    """A bound socket, and the context of TLS where it speaks it."""

    bound: socket.socket
    context: ssl.SSLContext | None = None
    handshake_s: float = 10.0
    prefix: str = ""  # of every path that is asked for here


def is_exposed(name: str, listen: str, bound: socket.socket, auth: AuthSettings) -> bool:
    """Whether other machines reach a socket and no client has to authenticate; raises StartError where the configuration
    does not say that this is meant."""
    if auth.enabled or is_loopback(bound):
        return False
    if not auth.insecure:
        raise StartError(
            f"{name} = {listen} is open to other machines and auth.enabled is false: turn it on, or say --insecure"
        )
    return True


class Listeners:
    """Bound first, so that a port that is taken is noticed before anything else is done; opened last."""

    def __init__(
        self,
        config: Config,
        sockets: contextlib.ExitStack,
        *,
        worker: int = 0,
        owner: WorkerAccess | None = None,
    ) -> None:
        """Read the certificates and bind every socket; raises StartError.

        A `worker`, counted from 1, shares its ports with others, and has its own ports, too. If a process owns the log of the
        workers, it is reached at `owner`: only it listens for Pulsar's protocol, and only they for HTTP.
        """
        self._config = config
        self._worker = worker
        self._owns = owner is not None and not worker
        self._owned = owner is not None and worker > 0
        self._for_workers: list[Listener] = []  # of the owner: HTTP, and Pulsar's protocol
        self._own: Listener | None = None
        self._own_pulsar: dict[
            str, Listener
        ] = {}  # by scheme, before a cluster that does not serve it itself
        self._certificates: Certificates | None = None
        self._listeners: dict[str, Listener] = {}  # by scheme
        http = config.http
        if http.listen == OFF and http.tls_listen == OFF:
            raise StartError("http.listen and http.tls_listen are both off: there is no way in")
        if any(getattr(config, section).tls_listen != OFF for section, _, scheme in SOCKETS if scheme in TLS):
            self._certificates = Certificates(config.tls)
        for section, key, scheme in SOCKETS:
            listen = getattr(getattr(config, section), key)
            if listen == OFF:
                continue
            try:
                shared = worker > 0 or owner is not None
                bound = sockets.enter_context(contextlib.closing(bind(listen, shared=shared)))
            except StartError as error:
                if scheme != "pulsar" or listen != PULSAR_LISTEN:
                    raise
                # A second server on a machine goes on without that endpoint.
                remedy = "--pulsar HOST:PORT, or off"
                log.warning("no Pulsar endpoint", extra={"reason": str(error), "remedy": remedy})
                continue
            context = None
            if self._certificates is not None and scheme in TLS:
                context = self._certificates.context(*((ALPN,) if scheme.endswith("https") else ()))
            prefix = PREFIXES.get(scheme.partition("+")[0], "")
            self._listeners[scheme] = Listener(bound, context, config.tls.handshake_ms / 1000, prefix)
        if owner is not None and not worker:
            for address in (owner.http, owner.pulsar):
                bound = sockets.enter_context(contextlib.closing(bind(address, shared=True)))
                self._for_workers.append(Listener(bound))
        self._peers: Listener | None = None  # for other processes of the service alone
        if worker:
            where = self._advertised
            self._own = _beside(self.http[0], 0 if where is None else where[2], sockets)
            if config.engine.url.startswith("kafka"):
                for scheme in PULSAR & self._listeners.keys():
                    self._own_pulsar[scheme] = _beside(self._listeners[scheme], 0, sockets)
        if config.engine.url.startswith("kafka") and (
            config.fleet.listen or self._shared_with_peers() is None
        ):
            self._peers = self._bind_for_peers(sockets)

    def check_exposed(self, auth: AuthSettings) -> None:
        """Raise StartError where other machines reach an endpoint, no client has to authenticate, and the
        configuration does not say that this is meant."""
        for section, key, scheme in sorted(SOCKETS):
            listener = self._listeners.get(scheme)
            name, listen = f"{section}.{key}", getattr(getattr(self._config, section), key)
            if listener is not None and is_exposed(name, listen, listener.bound, auth):
                extra = {"key": name, "listen": listen}
                log.warning("open to other machines without authentication", extra=extra)

    def _url(self, scheme: str) -> str:
        listener = self._listeners.get(scheme)
        if listener is None:
            return ""
        return url_of(listener.bound, scheme.rpartition("+")[2] if listener.prefix else scheme)

    @property
    def urls(self) -> list[str]:
        """Where the listeners are."""
        return [self._url(scheme) for scheme in self._listeners]

    @property
    def http(self) -> list[Listener]:
        """Those that the HTTP server is to open."""
        if self._owns:
            return self._for_workers[:1]
        shared = [listener for scheme, listener in self._listeners.items() if scheme not in PULSAR]
        return shared if self._own is None else [*shared, self._own]

    @property
    def own_url(self) -> str:
        """Where other processes reach this one alone; a loopback address unless `http.advertise` names another."""
        if self._advertised is not None:
            return _joined(*self._advertised)
        return url_of((self._own or self.http[0]).bound, self._own_scheme)

    @property
    def _own_scheme(self) -> str:
        return "http" if self.http[0].context is None else "https"

    @property
    def own_pulsar(self) -> Owner:
        """Where clients of Pulsar's protocol reach this process alone; without an address where that is not known."""
        return Owner(self._own_pulsar_url("pulsar"), self._own_pulsar_url("pulsar+ssl"))

    @property
    def peer_url(self) -> str:
        """Where other processes reach Pulsar's protocol of this one."""
        found = self._peers or self._shared_with_peers()
        if found is None:
            return ""
        host, port = found.bound.getsockname()[:2]
        if self._advertised is not None or _is_unspecified(host):
            host = urlsplit(self.own_url).hostname or ""
        return _joined("pulsar" if found.context is None else "pulsar+ssl", host, port)

    def _shared_with_peers(self) -> Listener | None:
        """The listener for clients at which other processes reach Pulsar's protocol of this one."""
        order = ("pulsar", "pulsar+ssl") if self._own_scheme == "http" else ("pulsar+ssl", "pulsar")
        for scheme in order:
            listener = self._own_pulsar.get(scheme) or self._listeners.get(scheme)
            if listener is not None and self._is_at_advertised(listener):
                return listener
        return None

    def _bind_for_peers(self, sockets: contextlib.ExitStack) -> Listener:
        """Over TLS if HTTP is. Raises StartError."""
        like, listen = self._own or self.http[0], self._config.fleet.listen
        if not listen:
            return _beside(like, 0, sockets)
        host, port = host_and_port(listen)
        return _at(like, host, port + max(0, self._worker - 1) if port else 0, sockets)

    def _own_pulsar_url(self, scheme: str) -> str:
        listener = self._own_pulsar.get(scheme) or self._listeners.get(scheme)
        if listener is None:
            return ""
        settings, (host, port) = self._config.pulsar, listener.bound.getsockname()[:2]
        named = settings.advertise if scheme == "pulsar" else settings.tls_advertise
        if named:  # clients may reach no other address
            return f"{scheme}://{named}"
        if not self._is_at_advertised(listener) or (self._advertised is None and _is_unspecified(host)):
            return ""
        return _joined(scheme, host if self._advertised is None else self._advertised[1], port)

    def _is_at_advertised(self, listener: Listener) -> bool:
        """Whether a listener is reached at the host that `http.advertise` names, as far as that can be known."""
        if self._advertised is None or not is_loopback(listener.bound):
            return True
        host = self._advertised[1]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    @property
    def _advertised(self) -> tuple[str, str, int] | None:
        """Scheme, host and port; of several workers each has the port after that of the one before it."""
        if not self._config.http.advertise:
            return None
        scheme, host, port = advertised(self._config.http.advertise, self._own_scheme)
        return scheme, host, port + max(0, self._worker - 1)

    async def open(self, context: ServerContext, binary: BinaryEndpoint) -> None:
        """Listen for Pulsar's protocol, before HTTP: a client that sees HTTP ready finds all of it."""
        settings, listeners = self._config.pulsar, self._listeners
        context.http_url, context.https_url = self._url("http"), self._url("https")
        context.own_url = self.own_url
        if self._owned:  # clients get its address from this process, too
            context.pulsar_url = self._client_url("pulsar", settings.advertise)
            context.pulsar_advertised = bool(settings.advertise)
            context.pulsar_tls_url = self._client_url("pulsar+ssl", settings.tls_advertise)
            context.pulsar_tls_advertised = bool(settings.tls_advertise)
            return
        if self._owns:
            await binary.open_for_workers(self._for_workers[1].bound)
        if "pulsar" in listeners:
            await binary.open(listeners["pulsar"].bound, self._url("pulsar"), settings.advertise)
        if "pulsar+ssl" in listeners:
            bound, tls, handshake_s, _ = listeners["pulsar+ssl"]
            assert tls is not None
            await binary.open_tls(bound, self._url("pulsar+ssl"), settings.tls_advertise, tls, handshake_s)
        for bound, own_tls, handshake_s, _ in self._own_pulsar.values():
            await binary.listen(bound, own_tls, handshake_s)
        if self._peers is not None:
            bound, peer_tls, handshake_s, _ = self._peers
            await binary.listen(bound, peer_tls, handshake_s, for_processes=True)
        if context.broker.cluster is not None:
            context.broker.cluster.announce(self.own_pulsar)

    def _client_url(self, scheme: str, advertised: str) -> str:
        return f"{scheme}://{advertised}" if advertised else self._url(scheme)

    def prepare(self, settings: TlsSettings) -> Callable[[], None] | None:
        """Read certificates by other settings; what takes them into use, None without TLS. Raises StartError."""
        return None if self._certificates is None else self._certificates.prepare(settings)

    def refresh(self) -> None:
        """Look for new certificates, also while no client connects."""
        if self._certificates is not None:
            self._certificates.refresh()


def _beside(like: Listener, port: int, sockets: contextlib.ExitStack) -> Listener:
    """A listener at the same address, and over TLS where the other one is; 0 is a free port."""
    return _at(like, like.bound.getsockname()[0], port, sockets)


def _at(like: Listener, host: str, port: int, sockets: contextlib.ExitStack) -> Listener:
    listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return like._replace(bound=sockets.enter_context(contextlib.closing(bind(listen))))


def bind(listen: str, *, shared: bool = False) -> socket.socket:
    """A bound socket that does not listen yet, so that no client connects before the endpoints are open.

    A `shared` port may be bound by other processes of this user, too.
    """
    host, port = host_and_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(f"cannot listen on {listen}: the port is taken") from None
        raise StartError(f"cannot listen on {listen}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine reaches a bound socket: by its address, which names were resolved to."""
    address = ipaddress.ip_address(bound.getsockname()[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _is_unspecified(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_unspecified


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """The address to reach it at: a wildcard address is reached by the loopback one."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return _joined(scheme, shown, port)


def _joined(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
