"""TLS as the client's arguments say."""

from __future__ import annotations

import ssl

from penstock.client.authentication import Authentication
from penstock.client.errors import InvalidConfiguration


def tls_context(
    *,
    trust_certs: str | None,
    insecure: bool,
    validate_hostname: bool,
    certificate: str | None,
    private_key: str | None,
    authentication: Authentication,
) -> ssl.SSLContext:
    """A context for connections to the broker. Raises InvalidConfiguration."""
    context = ssl.create_default_context()
    context.check_hostname = validate_hostname and not insecure
    if insecure:
        context.verify_mode = ssl.CERT_NONE
    try:
        if trust_certs:
            context.load_verify_locations(trust_certs)
        files = authentication.certificate() or ((certificate, private_key) if certificate else None)
        if files is not None:
            context.load_cert_chain(*files)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"the certificates cannot be used: {error}") from error
    return context
