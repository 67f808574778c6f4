"""Certificates are read again when their files change, and not more often than they are to be."""

from pathlib import Path

import pytest
import trustme

from penstock.server.config import StartError, TlsSettings
from penstock.server.tls import Certificates


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def write(file: Path, ca: trustme.CA) -> None:
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))


def test_looked_at_no_more_often_than_told(tmp_path: Path, ca: trustme.CA) -> None:
    file, time = tmp_path / "server.pem", Time()
    write(file, ca)
    certificates = Certificates(TlsSettings(cert_file=str(file), reload_ms=1000), time)
    certificates.context("http/1.1")
    listener = certificates._listeners[0]
    first = listener.current
    write(file, ca)
    time.now = 0.9
    certificates.refresh()
    assert listener.current is first
    time.now = 1.0
    certificates.refresh()
    assert listener.current is not first
    second = listener.current
    time.now = 5.0
    certificates.refresh()
    assert listener.current is second  # nothing has changed


def test_an_encrypted_key_is_refused(tmp_path: Path, ca: trustme.CA) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    made = ca.issue_cert("localhost")
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    made.cert_chain_pems[0].write_to_path(str(cert_file))
    key_file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(StartError, match="the key is encrypted"):
        Certificates(TlsSettings(cert_file=str(cert_file), key_file=str(key_file)))
