"""Calls from web pages: which may be made, and the headers that let their page see the answer (CORS).

Any page that is open in a browser can send requests to a server on the same machine, or in the same network, in the
name of its user; WebSockets too, which no browser holds to its same-origin policy. So what says that it
comes from another site is refused, before any endpoint sees it, unless that site was allowed. If no client has to say who
he is, the server also answers to no name but its own: a page whose name is pointed to this machine after it was
loaded (DNS rebinding) is of the same origin.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.audit import Audit
from penstock.protocols.http.answers import Answer, Header
from penstock.protocols.http.exchange import Exchange, Scope

from .config import ANY_ORIGIN

METHODS: Final = "GET, HEAD, POST, PUT, DELETE"
MAX_AGE_S: Final = 600  # how long a browser may go without asking again
HOSTS_MAX: Final = 1000  # names that were found to be ours

# Names of headers (RFC 9110 5.6.2), commas between.
_FIELDS: Final = re.compile(rb"[\w!#$%&'*+.^`|~, -]{1,2000}")


class Origins:
    """Checks requests and upgrades. `own_names_only`: whatever is for another name is refused."""

    def __init__(self, allowed: Iterable[str], audit: Audit, *, own_names_only: bool = False) -> None:
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._all = ANY_ORIGIN in self._allowed
        self._audit = audit
        self._own_names_only = own_names_only and not self._all
        self._names = {socket.gethostname().lower(), *(_name(origin) for origin in self._allowed)}
        self._hosts: set[bytes] = set()

    def check(self, exchange: Exchange) -> Answer | None:
        """Raise FORBIDDEN for a request that is not taken. The page that makes one may see its answer.

        Returns what a browser is answered that asks before it sends (a preflight).
        """
        scope = exchange.scope
        origin = self.check_socket(scope)
        if origin is None:
            return None
        if exchange.method == "OPTIONS" and _header(scope, b"access-control-request-method"):
            return _preflight(scope, origin)
        exchange.shown = _shown(origin)
        return None

    def check_socket(self, scope: Scope) -> bytes | None:
        """Raise FORBIDDEN for a call that is not taken; returns the origin of one from another site that is."""
        origin: bytes | None = None
        host = site = mode = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
        if self._own_names_only and host not in self._hosts and not self._is_ours(host):
            raise self._refused(
                "call for another name",
                host,
                "is not a name of this machine, and auth.enabled is false: name its origin in http.allowed_origins",
            )
        if origin is None:
            # Images, scripts and the like; a link may lead here, and the user who follows it sees the answer.
            if site == b"cross-site" and mode != b"navigate" and not self._all:
                raise self._refused("call from another site", site, "requests are not taken here")
            return None
        if _authority(origin) == host.lower() and host:
            return None
        if not self._may(origin):
            said = "is an origin that may not call this server: name it in http.allowed_origins"
            raise self._refused("call from another site", origin, said)
        return origin

    def _may(self, origin: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        return self._all or text in self._allowed or is_loopback_origin(text)

    def _is_ours(self, host: bytes) -> bool:
        """Whether no other site can have pointed this name at the server (DNS rebinding)."""
        if host and not (is_private_name(name := _name(host.decode("latin-1"))) or name in self._names):
            return False
        if len(self._hosts) < HOSTS_MAX:
            self._hosts.add(host)
        return True

    def _refused(self, action: str, what: bytes, said: str) -> PenstockError:
        text = what[:200].decode("latin-1")
        self._audit.refused_permission(None, action, text)
        return PenstockError(ErrorKind.FORBIDDEN, f"{text!r} {said}")


def is_loopback_origin(origin: str) -> bool:
    """Whether an origin, in lower case, is a page that is served on the machine of the browser."""
    scheme, _, authority = origin.partition("://")
    return scheme in ("http", "https") and _is_loopback(_name(authority))


def is_private_name(name: str) -> bool:
    """Whether no other host can have this name or address in public DNS."""
    if "." not in name or name.endswith((".localhost", ".internal")):
        return True  # no domain of one label has an address; `internal` is reserved (host.docker.internal)
    return _address(name) is not None


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _name(authority: str) -> str:
    """The host of `host:port`, or of an origin, in lower case: without brackets, and without a dot at its end."""
    authority = authority.rpartition("://")[2].lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].removesuffix(".")


def _authority(origin: bytes) -> bytes:
    """What a browser's Host header is for an origin: the scheme is a proxy's business."""
    return origin.partition(b"://")[2].lower()


def _header(scope: Scope, name: bytes) -> bytes:
    found: bytes = next((value for each, value in scope["headers"] if each == name), b"")
    return found


def _preflight(scope: Scope, origin: bytes) -> Answer:
    headers = {
        "access-control-allow-origin": origin.decode("latin-1"),
        "access-control-allow-methods": METHODS,
        "access-control-max-age": str(MAX_AGE_S),
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }
    wanted = _header(scope, b"access-control-request-headers")
    if _FIELDS.fullmatch(wanted):
        headers["access-control-allow-headers"] = wanted.decode("latin-1")
    if _header(scope, b"access-control-request-private-network") == b"true":
        headers["access-control-allow-private-network"] = "true"
    return Answer(status=204, headers=headers)


def _shown(origin: bytes) -> Sequence[Header]:
    """What lets the page see the answer. No cookies or passwords of the browser's own: no
    `Access-Control-Allow-Credentials`."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    )
