"""The service a client talks to: how it is reached, and who answers questions about topics."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from penstock.client.authentication import ActingFor, Authentication
from penstock.client.session.service_url import parse_service_url

from .lookup import BinaryLookup, Lookup
from .pool import Pool
from .tls import tls_context

if TYPE_CHECKING:
    from .http_lookup import HttpLookup


class Service:
    """`options.ClientOptions` describes the arguments; those of the official client's own machinery are passed over."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None,
        timeout_s: float,
        *,
        connection_timeout_ms: int = 10_000,
        listener_name: str | None = None,
        use_tls: bool = False,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        tls_private_key_file_path: str | None = None,
        tls_certificate_file_path: str | None = None,
        original_principal: str | None = None,
        original_authentication: Authentication | None = None,
        ssl_context: ssl.SSLContext | None = None,
        io_threads: int = 1,
        message_listener_threads: int = 1,
        concurrent_lookup_requests: int = 50_000,
        log_conf_file_path: str | None = None,
        stats_interval_in_seconds: int = 600,
        logger: Any = None,
    ) -> None:
        if use_tls and service_url.startswith("pulsar://"):
            service_url = "pulsar+ssl://" + service_url.removeprefix("pulsar://")
        url = parse_service_url(service_url)
        authentication = authentication or Authentication()
        if original_principal is not None or original_authentication is not None:
            authentication = ActingFor(authentication, original_principal or "", original_authentication)
        if url.tls and ssl_context is None:
            ssl_context = tls_context(
                trust_certs=tls_trust_certs_file_path,
                insecure=tls_allow_insecure_connection,
                validate_hostname=tls_validate_hostname,
                certificate=tls_certificate_file_path,
                private_key=tls_private_key_file_path,
                authentication=authentication,
            )
        self._pool = Pool(authentication, ssl_context, connection_timeout_ms / 1000)
        self._http: HttpLookup | None = None
        self.lookup: Lookup
        if url.http:
            from .http_lookup import HttpLookup  # here, so that nobody else imports an HTTP client

            self.lookup = self._http = HttpLookup(self._pool, url, authentication, ssl_context, timeout_s)
        else:
            self.lookup = BinaryLookup(self._pool, url, listener_name, timeout_s)

    async def close(self) -> None:
        """Drop all connections."""
        await self._pool.close()
        if self._http is not None:
            await self._http.close()
