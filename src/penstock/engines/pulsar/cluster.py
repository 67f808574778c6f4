"""The connection to the cluster: Pulsar's protocol, the admin REST, and what the brokers are configured to."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.broker.cluster import ClusterAnswer, Headers, Owner
from penstock.broker.settings import ClusterSettings
from penstock.client.aio.context import Context, tls_context
from penstock.client.aio.lookup import BinaryLookup
from penstock.client.authentication import (
    ActingFor,
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from penstock.client.errors import PulsarException
from penstock.client.options import ClientOptions, complete
from penstock.client.session.connection import parse_service_url
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .admin import Admin

log = logging.getLogger(__name__)

START_S: Final = 20.0  # a cluster that starts at the same time may take so long
LOOK_MS: Final = 5000  # how often it is looked whether the cluster is there
LOOK_S: Final = 5.0  # for its answer
_INTERCEPTOR: Final = "AppendIndexMetadataInterceptor"
_PROBE: Final = "persistent://public/default/penstock-probe"  # asked for, never created


class PulsarCluster:
    """`broker.Cluster`. `runtime` is the brokers' configuration, empty where the server may not see it."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self.authentication = authentication_of(settings)
        self.act_for = settings.act_for
        self.timeout_s = settings.timeout_ms / 1000
        self._options = complete(ClientOptions, "Context", _client_options(settings))
        own = self.authentication
        if settings.own_principal:
            own = ActingFor(own, settings.own_principal)
        self.context = self.context_of(own)
        verify: ssl.SSLContext | bool = False
        if parse_service_url(settings.admin_url).tls:
            verify = tls_context(self._options, own)
        self.admin = Admin(settings.admin_url, own, verify, self.timeout_s)
        self.runtime: dict[str, Any] = {}
        self.problem: str | None = None

    def context_of(self, authentication: Authentication) -> Context:
        """Connections to the cluster of their own."""
        return Context(self._settings.url, authentication, self.timeout_s, self._options, entry_metadata=True)

    @property
    def acts_for_callers(self) -> bool:
        return self.act_for != "server"

    async def start(self) -> None:
        """Reach the cluster and learn what it is configured to; raises UNAVAILABLE."""
        await self._reach_soon()
        try:
            found = await self.admin.get("/brokers/configuration/runtime")
            self.runtime = found if isinstance(found, dict) else {}
        except PenstockError as error:
            if error.kind is not ErrorKind.FORBIDDEN:
                raise
            log.warning(
                "the brokers' configuration cannot be seen",
                extra={
                    "reason": error.message,
                    "follows": "offsets are not shown, and topics are taken for created as Pulsar does by default",
                },
            )
        self.context.tasks.spawn(self._watch(), "look after the cluster")

    async def _reach_soon(self) -> None:
        until = asyncio.get_running_loop().time() + START_S
        while True:
            await self.look()
            if self.problem is None:
                return
            if asyncio.get_running_loop().time() >= until:
                raise PenstockError(ErrorKind.UNAVAILABLE, self.problem)
            await asyncio.sleep(0.5)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            before = self.problem
            await self.look()
            if before != self.problem and (before is None or self.problem is None):
                log.warning("the cluster is back" if self.problem is None else self.problem)

    async def look(self) -> None:
        """Find out whether the cluster answers, and set `problem`."""
        url, lookup = self._settings.url, self.context.lookup
        connected = False
        try:
            async with asyncio.timeout(LOOK_S):
                if isinstance(lookup, BinaryLookup):
                    await lookup.service()
                connected = True
                await lookup.partitions(_PROBE, create=False)
            self.problem = None
        except PulsarException as error:
            if error.can_retry:
                self.problem = f"the cluster cannot be reached: {error.message}"
            elif connected:
                self.problem = None  # it answered
            else:
                self.problem = f"the cluster at {url} refuses the credentials of this server: {error.message}"
        except (OSError, TimeoutError):
            self.problem = f"the cluster at {url} does not answer"

    async def close(self) -> None:
        """End all connections."""
        await self.context.close()
        await self.admin.close()

    # -- what the brokers are configured to

    @property
    def numbered(self) -> bool:
        """Whether entries are numbered, and clients see the numbers."""
        interceptors = str(self.runtime.get("brokerEntryMetadataInterceptors", ""))
        return _INTERCEPTOR in interceptors and self.flag("exposingBrokerEntryMetadataToClientEnabled")

    def flag(self, name: str, default: bool = False) -> bool:
        """A setting of the brokers that is true or false."""
        return str(self.runtime.get(name, default)).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A setting of the brokers that is a number."""
        try:
            return int(self.runtime.get(name, default))
        except ValueError:
            return default

    # -- for endpoints

    async def request(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes
    ) -> ClusterAnswer:
        return await self.admin.forward(method, path, query, headers, body)

    async def owner(self, topic: TopicName) -> Owner:
        path = f"{topic.domain}/{topic.tenant}/{topic.namespace}/{quote(topic.local, safe='')}"
        answer = await self.admin.forward("GET", f"/lookup/v2/topic/{path}", b"", (), b"")
        if answer.status >= 400:
            kind = ErrorKind.TOPIC_NOT_FOUND if answer.status == 404 else ErrorKind.UNAVAILABLE
            raise PenstockError(
                kind,
                f"the cluster cannot say who serves {topic}: {answer.body[:200].decode(errors='replace')}",
            )
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return Owner(found.get("brokerUrl") or "", found.get("brokerUrlTls") or "")


def authentication_of(settings: ClusterSettings) -> Authentication:
    """Who the server is to the cluster; raises BAD_PARAMETER for credentials of two kinds."""
    given = [
        name
        for name, value in (
            ("token", settings.token),
            ("token_file", settings.token_file),
            ("username", settings.username),
        )
        if value
    ]
    if len(given) > 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"engine: {' and '.join(given)} exclude one another")
    if settings.token:
        return AuthenticationToken(settings.token.reveal())
    if settings.token_file:
        path = Path(settings.token_file)
        return AuthenticationToken(lambda: path.read_text(encoding="utf-8").strip())
    if settings.username:
        return AuthenticationBasic(settings.username, settings.password.reveal())
    if settings.tls_cert_file:
        return AuthenticationTLS(settings.tls_cert_file, settings.tls_key_file or settings.tls_cert_file)
    return Authentication()


def _client_options(settings: ClusterSettings) -> dict[str, Any]:
    return {
        "tls_trust_certs_file_path": settings.tls_trust_file or None,
        "tls_validate_hostname": settings.tls_check_host,
        "tls_certificate_file_path": settings.tls_cert_file or None,
        "tls_private_key_file_path": (settings.tls_key_file or settings.tls_cert_file) or None,
        "connection_timeout_ms": 10_000,
    }
