"""Certificates of Kafka brokers that a test starts."""

from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

LISTENER: Final = "listener.name.clients"


def tls_settings(folder: Path, authority: trustme.CA) -> dict[str, str]:
    """A server's certificate in a file that Kafka reads, and who may have signed a client's."""
    made = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    store, trust = folder / "store.pem", folder / "trust.pem"
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the form that Java reads
    store.write_bytes(pkcs8 + b"".join(one.bytes() for one in made.cert_chain_pems))
    authority.cert_pem.write_to_path(trust)
    return {
        f"{LISTENER}.ssl.keystore.type": "PEM",
        f"{LISTENER}.ssl.keystore.location": str(store),
        f"{LISTENER}.ssl.truststore.type": "PEM",
        f"{LISTENER}.ssl.truststore.location": str(trust),
    }
