"""Who is at an endpoint, what they may do, and the bounds they are held to: one place for every endpoint."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.consumer import Consumer
from penstock.broker.names import dead_letter_topic
from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import DeadLetter

from .audit import Audit
from .auth.authenticator import Auth
from .auth.permissions import ADMIN, CONSUME, PRODUCE
from .auth.principal import Principal
from .auth.proxies import NONE, Original, RefusedOriginalError
from .holds import Hold, Holds, expired
from .load import SHARE, Load, holding_of
from .proxied import Proxied
from .rates import SCOPE_KEY, Allowance, Rates, RoleRates


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the JSON endpoints, each with its reason."""

    max_request_bytes: int = 5 * 1024 * 1024 + 256 * 1024  # one message of the largest size, and its JSON
    max_messages_per_request: int = 10_000  # a request is worked on in one go
    max_read_messages: int = 10_000  # and so is an answer
    max_read_bytes: int = 16 * 1024 * 1024
    max_wait_ms: int = 300_000  # longest poll
    max_frame_bytes: int = 7 * 1024 * 1024 + 256 * 1024  # base64 of the largest message, and its JSON
    # Pulsar's webSocketSessionIdleTimeoutMillis; pings and pongs count, also those of http.websocket_ping_s.
    websocket_idle_ms: int = 300_000
    websocket_outbox_bytes: int = 512 * 1024  # read for a socket and not written to it, as its peer is slow
    consumer_timeout_ms: int = 300_000  # a REST consumer without requests
    max_rest_consumers: int = 10_000
    binary_keep_alive_ms: int = 30_000  # Pulsar's keepAliveIntervalSeconds: then a ping, then the end
    binary_stall_ms: int = 30_000  # a client of the binary endpoint that takes nothing of what waits for it
    # From a connection's beginning until its client is admitted: a round trip or two, and a password to be checked.
    binary_connect_ms: int = 10_000
    max_properties_bytes: int = 256 * 1024  # properties of one message, topic or namespace, names and values
    # Of all endpoints together: a connection costs memory and a file, and both end.
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000  # one address cannot have all; it may be a proxy, and have many
    max_bytes_in_flight: int = 256 * 1024 * 1024  # what was received and not answered, and output not taken
    # Of them, what one role may have alone, or one address without a role; always less than what others leave free
    # allows (`load`). 1: all of it.
    max_bytes_in_flight_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = SHARE
    max_headers: int = 128  # of one request; each is looked at by every search for one
    head_ms: int = 20_000  # to send a request's head, a new connection's first one included
    body_ms: int = 20_000  # to send a request's body, and more for what came at `min_bytes_per_s`
    min_bytes_per_s: int = 500  # a sender, or a reader, slower than this for longer than its time is dropped
    stall_ms: int = 30_000  # for a reader to take what is written, of HTTP and WebSocket
    # What commands of one connection of Pulsar's protocol hold until they are stored; then it is not read. Twice
    # what one producer may have waiting.
    max_connection_bytes_in_flight: int = 64 * 1024 * 1024
    # Of each role, over all endpoints together; of each address where authentication is off. 0: without bound, as
    # what is too much depends on the machine.
    max_requests_per_s: int = 0
    max_bytes_per_s: int = 0  # in both directions
    role_rates: dict[str, RoleRates] = {}  # of single roles


class ServerContext:
    """What every endpoint is given: the broker, the limits, who may come in, and whether the server still takes work."""

    def __init__(self, broker: Broker, limits: Limits | None = None, auth: Auth | None = None) -> None:
        self.broker = broker
        # One object for all who hold it, changed in its place: no other object may change with it.
        self.limits = msgspec.structs.replace(limits or Limits())
        self.auth = auth  # None: every client may do everything
        self.holds = Holds(broker.clock)
        self.proxied = Proxied(broker.clock)
        self.audit = Audit()
        self._anybody = Session(self, None)
        if auth is not None:
            broker.namespaces.listeners.append(self.holds.review)
        self.load = Load(
            self.limits.max_connections,
            self.limits.max_connections_per_address,
            self.limits.max_bytes_in_flight,
            self.limits.max_bytes_in_flight_share,
        )
        self.rates: Rates | None = None  # where no role has a bound
        self._set_rates()
        self.draining = False
        self.pulsar_url = ""  # where Pulsar's binary protocol is spoken; "" where it is not
        self.pulsar_advertised = False  # whether that is what the outside is to be told, in every answer
        self.pulsar_tls_url = ""  # the same over TLS
        self.pulsar_tls_advertised = False
        self.http_url = ""  # where HTTP is spoken; "" where it is not
        self.https_url = ""

    # -- what may change while the server runs

    def apply_limits(self, limits: Limits) -> None:
        """Go by other limits from now on; what a connection was given at its beginning stays until its end."""
        for name in Limits.__struct_fields__:
            msgspec.structs.force_setattr(self.limits, name, getattr(limits, name))
        self.load.connections_max = limits.max_connections
        self.load.connections_per_address = limits.max_connections_per_address
        self.load.bound_bytes(limits.max_bytes_in_flight, limits.max_bytes_in_flight_share)
        self._set_rates()

    def _set_rates(self) -> None:
        limits = self.limits
        rates = limits.max_requests_per_s, limits.max_bytes_per_s, limits.role_rates
        if self.rates is not None:
            self.rates.change(*rates)
        elif any(rates):
            self.rates = Rates(self.broker.clock, *rates)

    def apply_auth(self, auth: Auth) -> None:
        """Other credentials and permissions; what lasts is asked for again whether it may go on."""
        if self.auth is None:
            return
        auth.permissions.replace(self.auth.permissions)
        self.auth = auth
        self.holds.review()

    # -- who

    async def admit(self, authorization: bytes | None, scope: Mapping[str, Any]) -> "Session":
        """Admit who sends an HTTP request, by its `Authorization` header, else by its `?token=` or certificate;
        for a proxy, whom it acts for.

        Raises UNAUTHENTICATED, FORBIDDEN for an original principal that may not be named, TOO_MANY_REQUESTS while too
        many passwords wait and beyond the role's rate, and UNAVAILABLE once the server drains. A token that was seen
        before costs a look into a dict; only a new password suspends.
        """
        self._check_open()
        if self.auth is None:
            if self.rates is not None:
                self._rate(None, scope)
            return self._anybody
        try:
            principal = await self.auth.of_http(authorization, scope)
        except PenstockError as error:
            self._refused(error, scope)
            raise
        if isinstance(scope, dict):
            scope["penstock.role"] = principal.role  # for the access log
            if principal.proxy is not None:
                scope["penstock.proxy"] = principal.authenticated.role
        holding = holding_of(scope)
        if holding is not None:
            holding.belong(principal.role)
        if self.rates is not None:
            self._rate(principal.role, scope)
        return Session(self, principal)

    def _rate(self, role: str | None, scope: Mapping[str, Any]) -> None:
        """Count a request in the allowance of who sends it."""
        allowance = self.allowance(role, (scope.get("client") or ("",))[0])
        if allowance is not None:
            if isinstance(scope, dict):
                scope[SCOPE_KEY] = allowance
            allowance.enter()

    def allowance(self, role: str | None, address: str) -> Allowance | None:
        """How much a role may do, or an address without one; None: whatever it likes."""
        if self.rates is None:
            return None
        return self.rates.of(address, "address") if role is None else self.rates.of(role)

    async def admit_method(
        self, method: str, data: bytes, peer: str | None, original: Original = NONE
    ) -> "Session":
        """The same for a method of Pulsar's protocol and its data; `peer` is the certificate's role."""
        self._check_open()
        if self.auth is None:
            return self._anybody
        try:
            return Session(self, await self.auth.of_method(method, data, peer, original))
        except PenstockError as error:
            self._refused(error, None)
            raise

    def _refused(self, error: PenstockError, scope: Mapping[str, Any] | None) -> None:
        if error.kind is ErrorKind.UNAUTHENTICATED:
            self.audit.refused_credentials(error.message, scope)
        elif isinstance(error, RefusedOriginalError):
            self.audit.refused_permission(error.role, "act for", error.original)

    def admit_anybody(self) -> "Session | None":
        """A session without credentials; None where authentication is on."""
        self._check_open()
        return self._anybody if self.auth is None else None

    def _check_open(self) -> None:
        if self.draining:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")

    @property
    def challenges(self) -> list[tuple[bytes, bytes]]:
        """The headers of an answer with 401."""
        texts = ("Bearer",) if self.auth is None else self.auth.challenges
        return [(b"www-authenticate", text.encode()) for text in texts]

    async def may_see_metrics(self, authorization: bytes | None, scope: Mapping[str, Any]) -> None:
        """Raise UNAUTHENTICATED unless who asks may see /metrics: any role, and every client where it is so
        configured."""
        if self.auth is not None and not self.auth.open_metrics:
            await self.auth.of_http(authorization, scope)


class Session:
    """A client admitted, under a role (None: authentication is off).

    Where a proxy acts for an original principal, `role` is that principal and `proxy` the authenticated role: both
    must be allowed what is asked for. What is owned, counted and limited belongs to `role`.
    """

    __slots__ = ("_roles", "context", "expires_ms", "principal", "proxy", "role")

    def __init__(self, context: ServerContext, principal: Principal | None) -> None:
        self.context = context
        self.principal = principal
        self.role = None if principal is None else principal.role
        self.proxy: str | None = None
        self.expires_ms: int | None = None
        self._roles: tuple[str, ...] = ()
        if principal is not None:
            if principal.proxy is None:
                self.expires_ms = principal.expires_ms
                self._roles = (principal.role,)
            else:
                self.expires_ms = principal.ends_first.expires_ms
                self._roles = tuple(one.role for one in principal.chain)
                self.proxy = self._roles[-1]

    # -- acting for others

    async def naming(self, original: Original) -> "Session":
        """This session for one command that names an original principal of its own: all of them must be allowed.

        Raises as `ServerContext.admit_method`.
        """
        auth, principal = self.context.auth, self.principal
        if auth is None or principal is None or not original:
            return self
        try:
            acting = await auth.acting(principal.authenticated, original)
        except PenstockError as error:
            self.context._refused(error, None)
            raise
        return Session(self.context, msgspec.structs.replace(acting, proxy=principal))

    async def renewed(self, method: str, data: bytes, peer: str | None) -> "Session":
        """The same session under new credentials, of the original principal or of its proxy.

        Raises as `ServerContext.admit_method`, and UNAUTHENTICATED for those of another role.
        """
        self.context._check_open()
        auth, principal = self.context.auth, self.principal
        if auth is None or principal is None:
            return self
        try:
            shown = await auth.authenticate(method, data, peer)
            renewed = principal.renewed(shown)
            if renewed is None:
                raise PenstockError(ErrorKind.UNAUTHENTICATED, "the new credentials are of another role")
        except PenstockError as error:
            self.context._refused(error, None)
            raise
        return Session(self.context, renewed)

    def own(self, one: Producer | Consumer) -> None:
        """Say on a producer or a consumer for whom it was made."""
        one.owner, one.proxy = self.role, self.proxy

    # -- what lasts

    def hold(self, check: Callable[[], object], ended: Callable[[PenstockError], None]) -> Hold | None:
        """Keep watch over something that lasts, until it closes what is returned; see `Hold`.

        None where nothing has to be watched. Raises what `check` does now.
        """
        if self.context.auth is None:
            return None
        check()
        return Hold(self.context.holds, self.expires_ms, check, ended)

    def check_time(self) -> None:
        """Raise UNAUTHENTICATED once the credentials have expired."""
        if self.expires_ms is not None and self.context.broker.clock.now_ms() >= self.expires_ms:
            raise expired()

    # -- topics

    def may_produce(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may publish to `topic`."""
        if self.context.auth is not None:
            self._demand(PRODUCE, topic)

    def may_produce_somewhere(self) -> None:
        """Raise FORBIDDEN unless there is something that the role may publish to."""
        auth = self.context.auth
        if auth is not None:
            self.check_time()
            self._demand_all(auth.permissions.produces, "produce to", "any topic")

    def may_consume(self, topic: TopicName, subscription: str | None = None) -> None:
        """Raise FORBIDDEN unless the role may read `topic`."""
        if self.context.auth is not None:
            self._demand(CONSUME, topic)

    def may_bury(self, topic: TopicName, subscription: str, letter: DeadLetter | None) -> None:
        """Raise FORBIDDEN unless the role may publish to where dead letters of `topic` go."""
        if letter is not None and self.context.auth is not None:
            self._demand(PRODUCE, dead_letter_topic(topic, subscription, letter.topic))

    def may_look(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may do anything with `topic`: then it may know that it is there."""
        if not self.sees(topic):
            raise self._forbidden("look up", topic)

    def sees(self, topic: TopicName) -> bool:
        """Whether the role may do anything with `topic`."""
        auth = self.context.auth
        if auth is None:
            return True
        self.check_time()
        may = auth.permissions.may
        return all(may(role, CONSUME, topic) or may(role, PRODUCE, topic) for role in self._roles)

    def consumes(self, topic: TopicName) -> bool:
        """Whether the role may read `topic`."""
        auth = self.context.auth
        return auth is None or all(auth.permissions.may(role, CONSUME, topic) for role in self._roles)

    def _demand(self, action: str, topic: TopicName) -> None:
        self.check_time()
        auth = self.context.auth
        assert auth is not None
        for role in self._roles:
            if not auth.permissions.may(role, action, topic):
                raise self._forbidden("produce to" if action == PRODUCE else "consume", topic, role)

    def _demand_all(self, may: Callable[[str], bool], what: str, where: object) -> None:
        """Raise FORBIDDEN unless each of the roles may."""
        for role in self._roles:
            if not may(role):
                raise self._forbidden(what, where, role)

    # -- namespaces, tenants, the server

    def may_administer(self, namespace: NamespaceName | None = None) -> None:
        """Raise FORBIDDEN unless the role administers the namespace (None: the whole server)."""
        auth = self.context.auth
        if auth is None:
            return
        self.check_time()
        permissions = auth.permissions
        if namespace is None:
            self._demand_all(permissions.is_super, "administer", "the server")
        else:
            self._demand_all(
                lambda role: permissions.may_in(role, ADMIN, namespace),
                "administer",
                f"namespace {namespace}",
            )

    def may_administer_topic(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role administers the topic, or its namespace."""
        auth = self.context.auth
        if auth is None:
            return
        self.check_time()
        self._demand_all(lambda role: auth.permissions.may(role, ADMIN, topic), "administer", topic)

    def may_administer_tenant(self, tenant: str) -> None:
        """Raise FORBIDDEN unless the role administers the tenant."""
        auth = self.context.auth
        if auth is None:
            return
        self.check_time()
        self._demand_all(
            lambda role: auth.permissions.administers(role, tenant), "administer", f"tenant {tenant}"
        )

    def may_list(self, namespace: NamespaceName) -> None:
        """Raise FORBIDDEN unless the role may do anything in the namespace; `sees` says which topics."""
        if not self.knows(namespace):
            raise self._forbidden("list", f"namespace {namespace}")

    def knows(self, namespace: NamespaceName) -> bool:
        """Whether the role may do anything in the namespace."""
        auth = self.context.auth
        if auth is None:
            return True
        self.check_time()
        return all(auth.permissions.knows(role, namespace) for role in self._roles)

    def forbidden_writer(self, name: str) -> PenstockError:
        """The error of a writer of staged batches that belongs to another role."""
        return self._forbidden("use", f"writer {name}: it belongs to another role")

    @property
    def is_super(self) -> bool:
        """Whether the role may do everything."""
        auth = self.context.auth
        return auth is None or (self.role is not None and all(map(auth.permissions.is_super, self._roles)))

    def _forbidden(self, what: str, where: object, role: str | None = None) -> PenstockError:
        """`role`: the one that lacks the permission, the first where several do."""
        self.context.audit.refused_permission(self.role, what, str(where), proxy=self.proxy)
        return PenstockError(ErrorKind.FORBIDDEN, f"role {role or self.role!r} may not {what} {where}")
