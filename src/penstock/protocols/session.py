"""Who is at a door, what they may do, and the bounds they are held to: one place for every door."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.core.broker import Broker
from penstock.core.dead_letters import dead_letter_topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import DeadLetter

from .audit import Audit
from .auth.authenticator import Auth
from .auth.permissions import ADMIN, CONSUME, PRODUCE
from .auth.principal import Principal
from .holds import Hold, Holds, expired
from .load import Load
from .proxied import Proxied
from .rates import SCOPE_KEY, Allowance, Rates, RoleRates


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the JSON doors, each with its reason."""

    max_request_bytes: int = 5 * 1024 * 1024 + 256 * 1024  # one message of the largest size, and its JSON
    max_messages_per_request: int = 10_000  # a request is worked on in one go
    max_read_messages: int = 10_000  # and so is an answer
    max_read_bytes: int = 16 * 1024 * 1024
    max_wait_ms: int = 300_000  # longest poll
    max_frame_bytes: int = 7 * 1024 * 1024 + 256 * 1024  # base64 of the largest message, and its JSON
    # Pulsar's webSocketSessionIdleTimeoutMillis; pings and pongs count, also those of http.websocket_ping_s.
    websocket_idle_ms: int = 300_000
    websocket_outbox_bytes: int = 4 * 1024 * 1024  # written but not taken by a slow reader
    consumer_timeout_ms: int = 300_000  # a REST consumer that nobody asks for
    max_rest_consumers: int = 10_000
    binary_keep_alive_ms: int = 30_000  # Pulsar's keepAliveIntervalSeconds: then a ping, then the end
    binary_stall_ms: int = 30_000  # a client of the binary door that takes nothing of what waits for it
    max_properties_bytes: int = 256 * 1024  # properties of one message, names and values
    # Of all doors together: a connection costs memory and a file, and both end.
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000  # one address cannot have all; it may be a proxy, and have many
    max_bytes_in_flight: int = 256 * 1024 * 1024  # request bodies not answered, and output not taken
    max_headers: int = 128  # of one request; each is looked at by whoever looks for one
    head_ms: int = 20_000  # to send a request's head, a new connection's first one included
    body_ms: int = 20_000  # to send a request's body, and more for what came at `min_bytes_per_s`
    min_bytes_per_s: int = 500  # a sender, or a reader, slower than this for longer than its time is dropped
    stall_ms: int = 30_000  # for a reader to take what is written, of HTTP and WebSocket
    # What commands of one connection of Pulsar's protocol hold until they are stored; then it is not read. Twice
    # what one producer may have waiting.
    max_connection_bytes_in_flight: int = 64 * 1024 * 1024
    # Of each role, over all doors together; of each address where authentication is off. 0: without bound, as
    # what is too much depends on the machine.
    max_requests_per_s: int = 0
    max_bytes_per_s: int = 0  # in both directions
    role_rates: dict[str, RoleRates] = {}  # of single roles


class Gate:
    """What every door is given: the broker, the limits, who may come in, and whether the server still takes work."""

    def __init__(self, broker: Broker, limits: Limits | None = None, auth: Auth | None = None) -> None:
        self.broker = broker
        self.limits = limits or Limits()
        self.auth = auth  # None: everybody may do everything
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
        )
        limits = self.limits
        self.rates = None  # where nobody has a bound
        if limits.max_requests_per_s or limits.max_bytes_per_s or limits.role_rates:
            self.rates = Rates(
                broker.clock, limits.max_requests_per_s, limits.max_bytes_per_s, limits.role_rates
            )
        self.draining = False
        self.pulsar_url = ""  # where Pulsar's binary protocol is spoken; "" where it is not
        self.pulsar_advertised = False  # whether that is what the outside is to be told, whoever asks
        self.pulsar_tls_url = ""  # the same over TLS
        self.pulsar_tls_advertised = False
        self.http_url = ""  # where HTTP is spoken; "" where it is not
        self.https_url = ""

    # -- who

    async def admit(self, authorization: bytes | None, scope: Mapping[str, Any]) -> "Session":
        """Admit who sends an HTTP request, by its `Authorization` header, else by its `?token=` or certificate.

        Raises UNAUTHENTICATED, TOO_MANY_REQUESTS while too many passwords wait and beyond the role's rate, and
        UNAVAILABLE once the server drains. A token that was seen before costs a look into a dict; only a new password suspends.
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

    async def admit_method(self, method: str, data: bytes, peer: str | None) -> "Session":
        """The same for a method of Pulsar's protocol and its data; `peer` is the certificate's role."""
        self._check_open()
        if self.auth is None:
            return self._anybody
        try:
            return Session(self, await self.auth.of_method(method, data, peer))
        except PenstockError as error:
            self._refused(error, None)
            raise

    def _refused(self, error: PenstockError, scope: Mapping[str, Any] | None) -> None:
        if error.kind is ErrorKind.UNAUTHENTICATED:
            self.audit.refused_credentials(error.message, scope)

    def admit_anybody(self) -> "Session | None":
        """A session where nobody has to say who it is; None where authentication is on."""
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
        """Raise UNAUTHENTICATED unless who asks may see /metrics: any role, and everybody where it is so
        configured."""
        if self.auth is not None and not self.auth.open_metrics:
            await self.auth.of_http(authorization, scope)


class Session:
    """Somebody admitted, under a role (None: authentication is off)."""

    __slots__ = ("expires_ms", "gate", "role")

    def __init__(self, gate: Gate, principal: Principal | None) -> None:
        self.gate = gate
        self.role = None if principal is None else principal.role
        self.expires_ms = None if principal is None else principal.expires_ms

    # -- what lasts

    def hold(self, check: Callable[[], object], ended: Callable[[PenstockError], None]) -> Hold | None:
        """Keep watch over something that lasts, until it closes what is returned; see `Hold`.

        None where nothing has to be watched. Raises what `check` does now.
        """
        if self.gate.auth is None:
            return None
        check()
        return Hold(self.gate.holds, self.expires_ms, check, ended)

    def check_time(self) -> None:
        """Raise UNAUTHENTICATED once the credentials have expired."""
        if self.expires_ms is not None and self.gate.broker.clock.now_ms() >= self.expires_ms:
            raise expired()

    # -- topics

    def may_produce(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may publish to `topic`."""
        if self.gate.auth is not None:
            self._demand(PRODUCE, topic)

    def may_produce_somewhere(self) -> None:
        """Raise FORBIDDEN unless there is something that the role may publish to."""
        auth = self.gate.auth
        if auth is not None:
            self.check_time()
            assert self.role is not None
            if not auth.permissions.produces(self.role):
                raise self._forbidden("produce to", "any topic")

    def may_consume(self, topic: TopicName, subscription: str | None = None) -> None:
        """Raise FORBIDDEN unless the role may read `topic`."""
        if self.gate.auth is not None:
            self._demand(CONSUME, topic)

    def may_bury(self, topic: TopicName, subscription: str, letter: DeadLetter | None) -> None:
        """Raise FORBIDDEN unless the role may publish to where dead letters of `topic` go."""
        if letter is not None and self.gate.auth is not None:
            self._demand(PRODUCE, dead_letter_topic(topic, subscription, letter.topic))

    def may_look(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may do anything with `topic`: then it may know that it is there."""
        if not self.sees(topic):
            raise self._forbidden("look up", topic)

    def sees(self, topic: TopicName) -> bool:
        """Whether the role may do anything with `topic`."""
        auth = self.gate.auth
        if auth is None:
            return True
        self.check_time()
        assert self.role is not None
        may = auth.permissions.may
        return may(self.role, CONSUME, topic) or may(self.role, PRODUCE, topic)

    def consumes(self, topic: TopicName) -> bool:
        """Whether the role may read `topic`."""
        auth = self.gate.auth
        return auth is None or (self.role is not None and auth.permissions.may(self.role, CONSUME, topic))

    def _demand(self, action: str, topic: TopicName) -> None:
        self.check_time()
        auth = self.gate.auth
        assert auth is not None
        assert self.role is not None
        if not auth.permissions.may(self.role, action, topic):
            raise self._forbidden("produce to" if action == PRODUCE else "consume", topic)

    # -- namespaces, tenants, the server

    def may_administer(self, namespace: NamespaceName | None = None) -> None:
        """Raise FORBIDDEN unless the role administers the namespace (None: the whole server)."""
        auth = self.gate.auth
        if auth is None:
            return
        self.check_time()
        assert self.role is not None
        if namespace is None:
            if not auth.permissions.is_super(self.role):
                raise self._forbidden("administer", "the server")
        elif not auth.permissions.may_in(self.role, ADMIN, namespace):
            raise self._forbidden("administer", f"namespace {namespace}")

    def may_administer_topic(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role administers the topic, or its namespace."""
        auth = self.gate.auth
        if auth is None:
            return
        self.check_time()
        assert self.role is not None
        if not auth.permissions.may(self.role, ADMIN, topic):
            raise self._forbidden("administer", topic)

    def may_administer_tenant(self, tenant: str) -> None:
        """Raise FORBIDDEN unless the role administers the tenant."""
        auth = self.gate.auth
        if auth is None:
            return
        self.check_time()
        assert self.role is not None
        if not auth.permissions.administers(self.role, tenant):
            raise self._forbidden("administer", f"tenant {tenant}")

    def may_list(self, namespace: NamespaceName) -> None:
        """Raise FORBIDDEN unless the role may do anything in the namespace; `sees` says which topics."""
        if not self.knows(namespace):
            raise self._forbidden("list", f"namespace {namespace}")

    def knows(self, namespace: NamespaceName) -> bool:
        """Whether the role may do anything in the namespace."""
        auth = self.gate.auth
        if auth is None:
            return True
        self.check_time()
        assert self.role is not None
        return auth.permissions.knows(self.role, namespace)

    def _forbidden(self, what: str, where: object) -> PenstockError:
        self.gate.audit.refused_permission(self.role, what, str(where))
        return PenstockError(ErrorKind.FORBIDDEN, f"role {self.role!r} may not {what} {where}")
