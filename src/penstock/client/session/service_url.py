"""Service URLs: `pulsar://host:6650`, `pulsar+ssl://…`, `http://…`, `https://…`; several hosts by commas."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.client.errors import InvalidUrl

_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}


class Address(NamedTuple):
    """A host to connect to."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServiceUrl(NamedTuple):
    """Where the service is."""

    scheme: str
    addresses: tuple[Address, ...]

    @property
    def http(self) -> bool:
        """Whether topics are looked up over HTTP."""
        return self.scheme.startswith("http")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.scheme in ("pulsar+ssl", "https")


def parse_service_url(text: str) -> ServiceUrl:
    """Read a service URL. Raises InvalidUrl."""
    scheme, separator, rest = text.partition("://")
    hosts = rest.rstrip("/")
    if not separator or scheme not in _PORTS or not hosts:
        raise InvalidUrl(f"{text!r} is no address like pulsar://127.0.0.1:6650")
    tls = scheme in ("pulsar+ssl", "https")
    return ServiceUrl(scheme, tuple(_address(text, host, _PORTS[scheme], tls) for host in hosts.split(",")))


def _address(url: str, text: str, default: int, tls: bool) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(default)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidUrl(f"{url!r}: {text!r} is not host:port")
    return Address(host, int(port), tls)
