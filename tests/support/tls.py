"""Certificates made for a test, and servers that use them."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from penstock.server.config import TlsSettings
from penstock.testing.server import Address, running

HOSTS = ("localhost", "127.0.0.1")


class Pki:
    """A CA of servers and one of clients, and the files of both in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers, self.clients = trustme.CA(), trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.client_ca_file = str(folder / "client-ca.pem")
        self.cert_file = str(folder / "server.pem")
        self.key_file = str(folder / "server.key")
        self.servers.cert_pem.write_to_path(self.ca_file)
        self.clients.cert_pem.write_to_path(self.client_ca_file)
        self.renew()

    def renew(self) -> None:
        """Give the server another certificate, the files one after the other."""
        made = self.servers.issue_cert(*HOSTS)
        made.private_key_pem.write_to_path(self.key_file)
        made.cert_chain_pems[0].write_to_path(self.cert_file)

    def client(self, name: str, ca: trustme.CA | None = None) -> tuple[str, str]:
        """Files of a client's certificate, with `name` as its common name, and of its key."""
        made = (ca or self.clients).issue_cert(f"{name}.example", common_name=name)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        made.cert_chain_pems[0].write_to_path(str(cert))
        made.private_key_pem.write_to_path(str(key))
        return str(cert), str(key)

    def settings(self, **further: Any) -> TlsSettings:
        """What the server is told; it looks at its files at every handshake."""
        return TlsSettings(
            **{"cert_file": self.cert_file, "key_file": self.key_file, "reload_ms": 0, **further}
        )

    def trust(self, cert: tuple[str, str] | None = None) -> ssl.SSLContext:
        """A client's context."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if cert is not None:
            context.load_cert_chain(*cert)
        return context

    @contextmanager
    def server(self, *, plain: bool = False, **settings: Any) -> Iterator[Address]:
        """A server over TLS."""
        with running(tls=self.settings(**settings), plain=plain) as address:
            yield address
