"""The connection to the cluster: Pulsar's protocol, the admin REST, and what the brokers are configured to."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from penstock.broker.acting import Acting
from penstock.broker.cluster import (
    ClusterAnswer,
    ClusterFigures,
    ClusterTraits,
    Elsewhere,
    Headers,
    Owner,
    Query,
)
from penstock.broker.settings import ClusterSettings
from penstock.broker.topic import Topic
from penstock.client.aio.context import Context
from penstock.client.aio.lookup import BinaryLookup
from penstock.client.authentication import Authentication
from penstock.client.errors import PulsarException
from penstock.client.options import ClientOptions, complete
from penstock.engines.attached.link import Attachment, LinkSink, OwnerLink, network_link
from penstock.engines.attached.subscription import Subscription, attached_subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo
from penstock.model.target import Target
from penstock.runtime.clock import Clock

from .admin import Admin
from .credentials import (
    CERTIFICATE,
    CallersToken,
    ServerAsItself,
    ServerForCaller,
    ServerRefused,
    advice,
    credentials_of,
    tls_of,
)

log = logging.getLogger(__name__)

START_S: Final = 20.0  # a cluster that starts at the same time may take so long
LOOK_MS: Final = 5000  # poll interval for the cluster
LOOK_S: Final = 5.0  # for its answer
_INTERCEPTOR: Final = "AppendIndexMetadataInterceptor"
_CONFIGURATION: Final = Target.of("admin", "v2", "brokers", "configuration", "runtime")
_PROBE: Final = "persistent://public/default/penstock-probe"  # asked for, never created
CALLERS_MAX: Final = 10_000
IDLE_MS: Final = 60_000  # then the connections of a caller without producers and consumers are closed


class PulsarCluster:
    """`broker.Cluster`. `runtime` is the brokers' configuration, empty if the server may not see it."""

    def __init__(self, settings: ClusterSettings, own: Authentication | None = None) -> None:
        """`own`: the server's credentials for the cluster; None: those of the settings. Raises BAD_PARAMETER."""
        self._settings = settings
        self.authentication = credentials_of(settings)
        self.traits = ClusterTraits(
            kind="pulsar",
            administered=True,
            acts_for_callers=settings.act_for != "server",
            wants_tokens=settings.act_for == "token",
        )
        self.timeout_s = settings.timeout_ms / 1000
        tls = tls_of(settings)
        given = {"ssl_context": tls, "connection_timeout_ms": 10_000}
        self._options = complete(ClientOptions, "Context", given)
        if own is None and settings.own_principal:
            own = ServerAsItself(self.authentication, settings.own_principal)
        own = own or self.authentication
        self.context = self.context_of(own)
        self.admin = Admin(settings.admin_url, own, tls or False, self.timeout_s)
        self.runtime: dict[str, Any] = {}
        self.problem: str | None = None
        self._refused = False  # the problem is the identity of the server or of the cluster

    def context_of(self, authentication: Authentication) -> Context:
        """Separate connections to the cluster."""
        return Context(self._settings.url, authentication, self.timeout_s, self._options, entry_metadata=True)

    def authentication_for(self, caller: Acting) -> Authentication:
        """The credentials by which the server reaches the cluster for a caller. Raises UNAUTHENTICATED if callers' tokens
        are used and this caller has none."""
        if not self.traits.wants_tokens:
            return ServerForCaller(self.authentication, caller.role)
        if not caller.token:
            raise PenstockError(
                ErrorKind.UNAUTHENTICATED,
                f"the cluster behind this server needs the own token of {caller.role!r} (engine.act_for = 'token'):"
                " a password, a certificate or a proxy's token cannot replace it",
            )
        return CallersToken(caller)

    async def start(self) -> None:
        """Reach the cluster and learn what it is configured to; raises UNAVAILABLE."""
        await self._reach_soon()
        try:
            found = await self.admin.get(_CONFIGURATION)
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
        """Credentials and certificates are not waited for: they are the same in a while."""
        until = asyncio.get_running_loop().time() + START_S
        while True:
            await self.look()
            if self.problem is None:
                return
            if self._refused or asyncio.get_running_loop().time() >= until:
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
        self.problem, self._refused = await self._look()

    async def _look(self) -> tuple[str | None, bool]:
        """The problem between this server and the cluster, and whether it is the identity of either."""
        url, lookup = self._settings.url, self.context.lookup
        connected = False
        try:
            async with asyncio.timeout(LOOK_S):
                if isinstance(lookup, BinaryLookup):
                    await lookup.service()
                connected = True
                await lookup.partitions(_PROBE, create=False)
        except ServerRefused as error:
            return f"{error.message} ({url})", True
        except PulsarException as error:
            if connected and not error.can_retry:
                return None, False  # it answered
            what = "" if connected else advice(error.message)
            refused = bool(what) and any(sign in error.message for sign in CERTIFICATE)
            return f"the cluster cannot be reached: {error.message}{what}", refused
        except (OSError, TimeoutError):
            return f"the cluster at {url} does not answer", False
        return None, False

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

    # -- for consumers

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        """A link over the network, which follows the partition from broker to broker itself."""
        return network_link(self.context, wanted, sink)

    def subscription(self, topic: Topic, name: str) -> Subscription:
        """The subscription of that name, as all consumers of this process see it."""
        return attached_subscription(partial(Subscription, self.admin), topic, name)

    # -- for endpoints

    async def request(
        self,
        method: str,
        target: Target,
        query: Query = (),
        headers: Headers = (),
        body: bytes = b"",
        *,
        caller: Acting | None = None,
    ) -> ClusterAnswer:
        authentication = None
        if caller is not None and self.traits.acts_for_callers:
            authentication = self.authentication_for(caller)
        return await self.admin.forward(method, target, query, headers, body, authentication)

    def figures(self) -> ClusterFigures:
        return ClusterFigures(self.problem)

    async def elsewhere(self, topic: TopicName) -> Elsewhere:
        """The brokers know all of it."""
        return Elsewhere()

    async def consumers(self, log: TopicName, subscription: str) -> Sequence[Mapping[str, str]]:
        try:
            stats = await self.admin.get(Target.of_topic(log, "stats"), missing=ErrorKind.TOPIC_NOT_FOUND)
        except PenstockError as error:
            if error.kind is ErrorKind.TOPIC_NOT_FOUND:
                return []
            raise
        found = stats.get("subscriptions", {}).get(subscription, {})
        return [each.get("metadata", {}) for each in found.get("consumers", [])]

    def announce(self, own: Owner) -> None:
        """Nothing: clients are sent to the brokers."""

    async def owner(self, topic: TopicName, client: ClientInfo = UNKNOWN_CLIENT) -> Owner:
        names = topic.domain, topic.tenant, topic.namespace, topic.local
        answer = await self.admin.forward("GET", Target.of("lookup", "v2", "topic", *names))
        if answer.status >= 400:
            kind = ErrorKind.TOPIC_NOT_FOUND if answer.status == 404 else ErrorKind.UNAVAILABLE
            raise PenstockError(
                kind,
                f"the cluster cannot say who serves {topic}: {answer.body[:200].decode(errors='replace')}",
            )
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return Owner(found.get("brokerUrl") or "", found.get("brokerUrlTls") or "")


class ActingCluster(PulsarCluster):
    """The cluster as one caller reaches it; administration and configuration are the server's."""

    def __init__(self, cluster: PulsarCluster, caller: Acting) -> None:
        self.used_ms = 0
        self.runtime = cluster.runtime
        self.admin = cluster.admin
        self.timeout_s = cluster.timeout_s
        self.context = cluster.context_of(cluster.authentication_for(caller))


class ActingClusters:
    """One for each role with clients here, or one for each token if callers' tokens are used: two tokens of one role may be
    two principals in the cluster, and a connection has one token all its life."""

    def __init__(self, cluster: PulsarCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._of: dict[str, ActingCluster] = {}

    def of(self, caller: Acting | None) -> PulsarCluster:
        """The cluster as reached for a caller. Raises TOO_MANY_REQUESTS, and UNAUTHENTICATED if callers' tokens are used and
        this caller has none."""
        if caller is None or not self._cluster.traits.acts_for_callers:
            return self._cluster
        found = self._of.get(caller.key)
        if found is None:
            if len(self._of) >= CALLERS_MAX:
                raise PenstockError(
                    ErrorKind.TOO_MANY_REQUESTS,
                    f"{CALLERS_MAX} roles or tokens have clients here, which is the limit",
                )
            found = self._of[caller.key] = ActingCluster(self._cluster, caller)
        found.used_ms = self._clock.monotonic_ms()
        return found

    async def sweep(self) -> None:
        """Close the connections of callers without producers and consumers."""
        before = self._clock.monotonic_ms() - IDLE_MS
        for key, one in list(self._of.items()):
            if one.used_ms < before and one.context.idle:
                del self._of[key]
                await one.context.close()

    async def close(self) -> None:
        """Close all."""
        clusters = list(self._of.values())
        self._of.clear()
        await asyncio.gather(*(one.context.close() for one in clusters))
