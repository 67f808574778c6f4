"""A broker that asks who comes: over TLS beside its plain ports, by token, password or certificate.

It keeps acknowledgements within batches, so that tests of these need no broker of their own.
"""

import contextlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from penstock.broker.settings import ClusterSettings
from penstock.model.secret import Secret
from penstock.testing.credentials import Issuer

from .pulsar_broker import NUMBERED, PulsarCluster, standalone

_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
PASSWORD: Final = "a password"
# `openssl passwd -apr1 -salt penstock 'a password'`
_HASHED: Final = "$apr1$penstock$PD2RdYoql5wlsAxJUaNf.."


class SecureCluster:
    """`plain` has the addresses, and an administrator's token.

    The brokers know the roles `penstock` (which acts for others) and `penstock-itself`, superusers both, by a token of
    `issuer`, and `basic` by its password; `certified`, which is a superuser too, by `client`. `app` may use public/default.
    """

    def __init__(self, folder: Path) -> None:
        self.issuer = Issuer()
        self.servers, self.clients = trustme.CA(), trustme.CA()
        self.plain: PulsarCluster
        self._folder = folder
        self.ca_file = self._write("ca.pem", self.servers.cert_pem.bytes())
        self.other_ca_file = self._write("clients.pem", self.clients.cert_pem.bytes())
        # Of its address alone: who comes by the name `localhost` meets a certificate of another host.
        made = self.servers.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
        self._cert_file = self._write("broker.pem", made.cert_chain_pems[0].bytes())
        self._key_file = self._write("broker.key", _pkcs8(made.private_key_pem.bytes()))
        self._passwords = self._write("passwords", f"basic:{_HASHED}\n".encode())

    def _write(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)

    def certificate(self, role: str, ca: trustme.CA | None = None) -> tuple[str, str]:
        """Files of a client's certificate and of its key."""
        made = (ca or self.clients).issue_cert(f"{role}.example", common_name=role)
        cert = self._write(f"{role}.pem", made.cert_chain_pems[0].bytes())
        return cert, self._write(f"{role}.key", made.private_key_pem.bytes())

    def settings(self) -> dict[str, str]:
        """The broker's."""
        roles = "admin,penstock,penstock-itself,basic,certified"
        return {
            **NUMBERED,
            "acknowledgmentAtBatchIndexLevelEnabled": "true",
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": ",".join(_PROVIDERS + name for name in ("Token", "Basic", "Tls")),
            "tokenSecretKey": f"data:;base64,{b64encode(self.issuer.key.encode()).decode()}",
            "basicAuthConf": f"file://{self._passwords}",
            "superUserRoles": roles,
            "proxyRoles": "penstock",
            "authenticationRefreshCheckSeconds": "1",
            "tlsCertificateFilePath": self._cert_file,
            "tlsKeyFilePath": self._key_file,
            "tlsTrustCertsFilePath": self.other_ca_file,
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.issuer.token('admin')}",
        }

    def engine(self, **more: Any) -> ClusterSettings:
        """What a server is told of the cluster: over TLS, as the role `penstock-itself`, unless `more` says otherwise."""
        told = {
            "url": self.plain.tls_url,
            "admin_url": self.plain.admin_tls_url,
            "tls_trust_file": self.ca_file,
        }
        if not more.keys() & {"token", "token_file", "username", "tls_cert_file"}:
            told["token"] = Secret(self.issuer.token("penstock-itself"))
        return ClusterSettings(**{**told, "act_for": "server", "learned_ms": 200, **more})


def _pkcs8(key: bytes) -> bytes:
    """Brokers read no other format of keys."""
    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@contextlib.contextmanager
def secure_standalone(folder: Path) -> Iterator[SecureCluster]:
    """Start one, with its data and its files in `folder`."""
    made = SecureCluster(folder)
    with standalone(folder, made.settings(), made.issuer.token("admin"), tls=True) as found:
        found.admin("POST", "namespaces/public/default/permissions/app", json=["produce", "consume"])
        made.plain = found
        yield made
