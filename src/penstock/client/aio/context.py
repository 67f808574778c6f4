"""What a client's producers and consumers share: the service, tasks, schemas and numbers."""

from __future__ import annotations

import itertools
import ssl

from penstock.client.authentication import ActingFor, Authentication
from penstock.client.errors import InvalidConfiguration
from penstock.client.options import ClientOptions
from penstock.client.session.connection import parse_service_url

from .link import Pool
from .lookup import BinaryLookup, HttpLookup, Lookup, Schemas
from .tasks import Tasks


class Context:
    """One client's; `options` are complete. `entry_metadata`: brokers send what they know of each entry."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None,
        timeout_s: float,
        options: ClientOptions,
        *,
        entry_metadata: bool = False,
    ) -> None:
        if options["use_tls"] and service_url.startswith("pulsar://"):
            service_url = "pulsar+ssl://" + service_url.removeprefix("pulsar://")
        url = parse_service_url(service_url)
        authentication = authentication or Authentication()
        principal, forwarded = options["original_principal"], options["original_authentication"]
        if principal is not None or forwarded is not None:
            authentication = ActingFor(authentication, principal or "", forwarded)
        ssl_context = options["ssl_context"]
        if url.tls and ssl_context is None:
            ssl_context = tls_context(options, authentication)
        connect_s = options["connection_timeout_ms"] / 1000
        self._pool = Pool(authentication, ssl_context, connect_s, entry_metadata=entry_metadata)
        self.lookup: Lookup
        if url.http:
            self.lookup = HttpLookup(self._pool, url, authentication, ssl_context, timeout_s)
        else:
            self.lookup = BinaryLookup(self._pool, url, options["listener_name"], timeout_s)
        self.timeout_s = timeout_s
        self.tasks = Tasks()
        self.schemas = Schemas(timeout_s)
        self.numbers = itertools.count()  # of producers and consumers

    @property
    def idle(self) -> bool:
        """Whether no producer or consumer uses its connections."""
        return self._pool.idle

    async def close(self) -> None:
        """End all tasks and all connections. A task that has something to say to the broker when it ends, say it is leaving
        a topic, gets no answer: a silent broker delays no other request."""
        self.tasks.cancel()
        await self._pool.close()
        await self.tasks.close()
        if isinstance(self.lookup, HttpLookup):
            await self.lookup.close()


def tls_context(options: ClientOptions, authentication: Authentication) -> ssl.SSLContext:
    """A context for connections to the broker. Raises InvalidConfiguration."""
    insecure = options["tls_allow_insecure_connection"]
    trust_certs, certificate = options["tls_trust_certs_file_path"], options["tls_certificate_file_path"]
    context = ssl.create_default_context()
    context.check_hostname = options["tls_validate_hostname"] and not insecure
    if insecure:
        context.verify_mode = ssl.CERT_NONE
    try:
        if trust_certs:
            context.load_verify_locations(trust_certs)
        files = authentication.certificate() or (
            (certificate, options["tls_private_key_file_path"]) if certificate else None
        )
        if files is not None:
            context.load_cert_chain(*files)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfiguration(f"the certificates cannot be used: {error}") from error
    return context
