"""The caller of an endpoint and its permissions: made for each request, and for each connection that lasts."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from penstock.broker.acting import ACTING, FOR_PROCESS, Acting
from penstock.broker.consumer import Consumer
from penstock.broker.fleet import CONNECT
from penstock.broker.names import dead_letter_topic
from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import DeadLetter
from penstock.model.secret import Secret
from penstock.model.worker import METHOD

from .auth.authenticator import bearer_of
from .auth.permissions import ADMIN, CONSUME, PRODUCE, Permissions
from .auth.principal import Principal
from .auth.proxies import NONE, Original, RefusedOriginalError
from .context import ServerContext
from .holding import holding_of
from .permission_watch import PermissionWatch, expired
from .rates import SCOPE_KEY

PROCESS_KEY: Final = "penstock.process"  # of a scope: whether another process of the service asks for itself


class Caller:
    """A client that was admitted, under a role (None: authentication is off, or it is a worker of this server that acts for
    itself and may do everything).

    Where a proxy acts for an original principal, `role` is that principal and `proxy` the authenticated role: both
    must be allowed what is asked for. What is owned, counted and limited belongs to `role`.
    """

    __slots__ = ("_roles", "context", "expires_ms", "is_worker", "principal", "proxy", "role")

    def __init__(self, context: ServerContext, principal: Principal | None) -> None:
        self.context = context
        self.principal = principal
        self.role: str | None = None
        self.proxy: str | None = None
        self.is_worker = False  # a worker of this server that acts for itself
        self.expires_ms: int | None = None
        self._roles: tuple[str, ...] = ()
        if principal is not None:
            self.role = principal.role
            if principal.proxy is None:
                self.expires_ms = principal.expires_ms
                self._roles = (principal.role,)
            else:
                self.expires_ms = principal.ends_first.expires_ms
                self._roles = tuple(one.role for one in principal.chain)
                self.proxy = self._roles[-1]

    # -- admission

    @classmethod
    async def admit(
        cls, context: ServerContext, authorization: bytes | None, scope: Mapping[str, Any]
    ) -> Self:
        """Admit the client of an HTTP request, by its `Authorization` header, else by its `?token=` or certificate;
        for a proxy, whom it acts for.

        Raises UNAUTHENTICATED, FORBIDDEN for an original principal that may not be named, TOO_MANY_REQUESTS while too
        many passwords wait and beyond the role's rate, and UNAVAILABLE once the server drains. A token that was seen
        before costs a look into a dict; only a new password suspends.
        """
        if context.draining:
            raise _draining()
        for_process = PROCESS_KEY in scope
        if (
            FOR_PROCESS.get() is not for_process
        ):  # the task of a connection answers one request after the other
            FOR_PROCESS.set(for_process)
        if for_process:
            return cls(context, None)
        if context.workers is not None and context.workers.is_own(authorization):
            worker = cls(context, None)
            worker.is_worker = True
            return worker
        if context.auth is None:
            if context.rates is not None:
                _count_request(context, None, scope)
            return cls(context, None)
        try:
            principal = await context.auth.of_http(authorization, scope)
        except PenstockError as error:
            _audit_refusal(context, error, scope)
            raise
        if isinstance(scope, dict):
            scope["penstock.role"] = principal.role  # for the access log
            if principal.proxy is not None:
                scope["penstock.proxy"] = principal.authenticated.role
        cluster = context.broker.cluster
        if cluster is not None and cluster.traits.acts_for_callers:
            # A proxy's token is not the token of the principal that it acts for.
            own = cluster.traits.wants_tokens and principal.proxy is None
            token = Secret(bearer_of(authorization, scope) if own else "")
            proxy = None if principal.proxy is None else principal.authenticated.role
            ACTING.set(Acting(principal.role, token, proxy))
        holding = holding_of(scope)
        if holding is not None:
            holding.belong(principal.role)
        if context.rates is not None:
            _count_request(context, principal.role, scope)
        return cls(context, principal)

    @classmethod
    async def admit_method(
        cls, context: ServerContext, method: str, data: bytes, peer: str | None, original: Original = NONE
    ) -> Self:
        """The same for a method of Pulsar's protocol and its data; `peer` is the certificate's role."""
        if context.draining:
            raise _draining()
        if method == METHOD and context.workers is not None:
            try:
                principal = context.workers.acting(data)
            except PenstockError as error:
                _audit_refusal(context, error, None)
                raise
            return cls(context, None if context.auth is None else principal)
        if context.auth is None:
            return cls(context, None)
        try:
            return cls(context, await context.auth.of_method(method, data, peer, original))
        except PenstockError as error:
            _audit_refusal(context, error, None)
            raise

    @classmethod
    def admit_process(cls, context: ServerContext, proof: bytes) -> Self:
        """The same for another process of this service, by its proof: it has admitted its clients, and may do everything."""
        if context.draining:
            raise _draining()
        try:
            if context.fleet is None:
                raise PenstockError(ErrorKind.UNAUTHENTICATED, "this server has no fleet.secret")
            try:
                context.fleet.accept(proof, CONNECT, b"", ())
            except PenstockError as error:
                raise PenstockError(ErrorKind.UNAUTHENTICATED, error.message) from None
        except PenstockError as error:
            _audit_refusal(context, error, None)
            raise
        return cls(context, None)

    @classmethod
    def unauthenticated(cls, context: ServerContext) -> Self | None:
        """A caller without credentials; None where authentication is on. Raises UNAVAILABLE."""
        if context.draining:
            raise _draining()
        return cls(context, None) if context.auth is None else None

    async def acting_for(self, original: Original) -> "Caller":
        """The caller of one command that names an original principal of its own: all of them must be allowed.

        Raises as `admit_method`.
        """
        auth, principal = self.context.auth, self.principal
        if auth is None or principal is None or not original:
            return self
        try:
            acting = await auth.acting(principal.authenticated, original)
        except PenstockError as error:
            _audit_refusal(self.context, error, None)
            raise
        return Caller(self.context, msgspec.structs.replace(acting, proxy=principal))

    async def renewed(self, method: str, data: bytes, peer: str | None) -> "Caller":
        """The same caller under new credentials, of the original principal or of its proxy.

        Raises as `admit_method`, and UNAUTHENTICATED for those of another role.
        """
        if self.context.draining:
            raise _draining()
        auth, principal = self.context.auth, self.principal
        if auth is None or principal is None:
            return self
        try:
            shown = await auth.authenticate(method, data, peer)
            renewed = principal.renewed(shown)
            if renewed is None:
                raise PenstockError(ErrorKind.UNAUTHENTICATED, "the new credentials are of another role")
        except PenstockError as error:
            _audit_refusal(self.context, error, None)
            raise
        return Caller(self.context, renewed)

    def set_owner(self, one: Producer | Consumer) -> None:
        """Note on a producer or a consumer for whom it was made."""
        one.owner, one.proxy = self.role, self.proxy

    # -- what outlasts a request

    def watch(
        self, check: Callable[[], object], ended: Callable[[PenstockError], None]
    ) -> PermissionWatch | None:
        """Watch the permission of a connection, stream or wait until it closes what is returned.

        None where nothing has to be watched. Raises what `check` does now.
        """
        if self.context.auth is None:
            return None
        check()
        return PermissionWatch(self.context.permission_watches, self.expires_ms, check, ended)

    def check_time(self) -> None:
        """Raise UNAUTHENTICATED once the credentials have expired."""
        if self.expires_ms is not None and self.context.broker.clock.now_ms() >= self.expires_ms:
            raise expired()

    def _permissions(self) -> Permissions | None:
        """None where authentication is off; raises as `check_time`."""
        auth = self.context.auth
        if auth is None:
            return None
        self.check_time()
        return auth.permissions

    def _require(self, may: Callable[[str], bool], what: str, where: object) -> None:
        """Raise FORBIDDEN unless each of the roles may."""
        for role in self._roles:
            if not may(role):
                raise self._forbidden(what, where, role)

    def _forbidden(self, what: str, where: object, role: str | None = None) -> PenstockError:
        """`role`: the one that lacks the permission, the first where several do."""
        self.context.audit.refused_permission(self.role, what, str(where), proxy=self.proxy)
        return PenstockError(ErrorKind.FORBIDDEN, f"role {role or self.role!r} may not {what} {where}")

    # -- topics

    def may_produce(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may publish to `topic`."""
        if (permissions := self._permissions()) is not None:
            self._require(lambda role: permissions.may(role, PRODUCE, topic), "produce to", topic)

    def may_produce_somewhere(self) -> None:
        """Raise FORBIDDEN unless there is something that the role may publish to."""
        if (permissions := self._permissions()) is not None:
            self._require(lambda role: permissions.somewhere(role, PRODUCE), "produce to", "any topic")

    def may_consume_somewhere(self) -> None:
        """Raise FORBIDDEN unless there is something that the role may read."""
        if (permissions := self._permissions()) is not None:
            self._require(lambda role: permissions.somewhere(role, CONSUME), "consume", "any topic")

    def may_consume(self, topic: TopicName, subscription: str | None = None) -> None:
        """Raise FORBIDDEN unless the role may read `topic`, and use the subscription if one is named."""
        if (permissions := self._permissions()) is None:
            return
        self._require(lambda role: permissions.may(role, CONSUME, topic), "consume", topic)
        if subscription is not None:
            namespace = topic.namespace_name
            self._require(
                lambda role: permissions.may_use_subscription(role, subscription, namespace),
                f"use the subscription {subscription} of",
                topic,
            )

    def may_dead_letter(self, topic: TopicName, subscription: str, letter: DeadLetter | None) -> None:
        """Raise FORBIDDEN unless the role may publish to where dead letters of `topic` go."""
        if letter is not None and self.context.auth is not None:
            self.may_produce(dead_letter_topic(topic, subscription, letter.topic))

    def may_look(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may do anything with `topic`: then it may know that it is there."""
        if not self.sees(topic):
            raise self._forbidden("look up", topic)

    def sees(self, topic: TopicName) -> bool:
        """Whether the role may do anything with `topic`."""
        permissions = self._permissions()
        return permissions is None or all(
            permissions.may(role, CONSUME, topic) or permissions.may(role, PRODUCE, topic)
            for role in self._roles
        )

    def consumes(self, topic: TopicName, subscription: str | None = None) -> bool:
        """Whether the role may read `topic`, and use the subscription if one is named."""
        if self.context.auth is None:
            return True
        permissions, namespace = self.context.auth.permissions, topic.namespace_name
        return all(
            permissions.may(role, CONSUME, topic)
            and (subscription is None or permissions.may_use_subscription(role, subscription, namespace))
            for role in self._roles
        )

    def allowed(self, topic: TopicName) -> dict[str, bool]:
        """What the role may do with `topic`, by the names of the actions; nothing of it is noted as refused."""
        permissions = self._permissions()
        return {
            action: permissions is None or all(permissions.may(role, action, topic) for role in self._roles)
            for action in (PRODUCE, CONSUME, ADMIN)
        }

    # -- namespaces, tenants, the server

    def administers(self, namespace: NamespaceName) -> bool:
        """Whether the role administers the namespace; nothing is noted as refused."""
        permissions = self._permissions()
        return permissions is None or all(permissions.may_in(role, ADMIN, namespace) for role in self._roles)

    def may_administer(self, namespace: NamespaceName | None = None) -> None:
        """Raise FORBIDDEN unless the role administers the namespace (None: the whole server)."""
        permissions = self._permissions()
        if permissions is None:
            return
        if namespace is None:
            self._require(permissions.is_super, "administer", "the server")
        else:
            self._require(
                lambda role: permissions.may_in(role, ADMIN, namespace),
                "administer",
                f"namespace {namespace}",
            )

    def may_administer_topic(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role administers the topic, or its namespace."""
        if (permissions := self._permissions()) is not None:
            self._require(lambda role: permissions.may(role, ADMIN, topic), "administer", topic)

    def may_administer_tenant(self, tenant: str) -> None:
        """Raise FORBIDDEN unless the role administers the tenant."""
        if (permissions := self._permissions()) is not None:
            self._require(
                lambda role: permissions.administers(role, tenant), "administer", f"tenant {tenant}"
            )

    def may_list(self, namespace: NamespaceName) -> None:
        """Raise FORBIDDEN unless the role may do anything in the namespace; `sees` says which topics."""
        if not self.knows(namespace):
            raise self._forbidden("list", f"namespace {namespace}")

    def knows(self, namespace: NamespaceName) -> bool:
        """Whether the role may do anything in the namespace."""
        permissions = self._permissions()
        return permissions is None or all(permissions.knows(role, namespace) for role in self._roles)

    def forbidden_writer(self, name: str) -> PenstockError:
        """The error of a writer of staged batches that belongs to another role."""
        return self._forbidden("use", f"writer {name}: it belongs to another role")

    @property
    def is_super(self) -> bool:
        """Whether the role may do everything."""
        auth = self.context.auth
        return auth is None or all(map(auth.permissions.is_super, self._roles))


def _draining() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")


def _count_request(context: ServerContext, role: str | None, scope: Mapping[str, Any]) -> None:
    """Count a request in the allowance of its role or address; raises TOO_MANY_REQUESTS."""
    allowance = context.allowance(role, (scope.get("client") or ("",))[0])
    if allowance is not None:
        if isinstance(scope, dict):
            scope[SCOPE_KEY] = allowance
        allowance.enter()


def _audit_refusal(context: ServerContext, error: PenstockError, scope: Mapping[str, Any] | None) -> None:
    if error.kind is ErrorKind.UNAUTHENTICATED:
        context.audit.refused_credentials(error.message, scope)
    elif isinstance(error, RefusedOriginalError):
        context.audit.refused_permission(error.role, "act for", error.original)
