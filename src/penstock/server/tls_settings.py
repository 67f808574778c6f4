"""What a server is told about TLS: the section `tls` of its configuration."""

from typing import Literal

import msgspec


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who the server is over TLS, and whether its clients have to say who they are."""

    cert_file: str = ""  # PEM: the server's certificate and those between it and its root
    key_file: str = ""  # PEM, not encrypted; empty: the key is in `cert_file`
    client_ca_file: str = ""  # PEM: who may have signed a client's certificate
    client_certificates: Literal["none", "optional", "required"] = "none"
    min_version: Literal["1.2", "1.3"] = "1.2"  # what came before 1.2 is broken (RFC 8996)
    handshake_ms: int = 10_000  # a client that has not finished it by then is dropped
    reload_ms: int = 1000  # the files are looked at no more often; 0: at every handshake
