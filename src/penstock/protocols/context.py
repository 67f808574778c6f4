"""What every endpoint is given: the broker, the limits, authentication, and whether the server still takes work."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.fleet import Fleet

from .audit import Audit
from .auth.authenticator import Auth
from .auth.workers import Workers
from .lasting import LastingWork
from .limits import Limits
from .load import Load
from .permission_watch import PermissionWatches
from .proxied import Proxied
from .rates import Allowance, Rates


class ServerContext:
    """One server, as its endpoints see it."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits | None = None,
        auth: Auth | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.broker = broker
        self.workers = workers  # of the process that owns the log; None in every other
        # One object for all that use it, changed in its place: no other object may change with it.
        self.limits = msgspec.structs.replace(limits or Limits())
        self.auth = auth  # None: every client may do everything
        self.permission_watches = PermissionWatches(broker.clock)
        self.proxied = Proxied(broker.clock)
        self.audit = Audit()
        self.lasting = LastingWork(broker.clock)
        if auth is not None:
            broker.namespaces.listeners.append(self.permission_watches.review)
        self.load = Load(
            self.limits.max_connections,
            self.limits.max_connections_per_address,
            self.limits.max_bytes_in_flight,
            self.limits.max_bytes_in_flight_share,
        )
        self.rates: Rates | None = None  # None: no role has a bound
        self._set_rates()
        self.draining = False
        self.fleet: Fleet | None = None  # the other processes of the service; None: this is the only one
        self.pulsar_url = ""  # of Pulsar's binary protocol; "" if it is off
        self.pulsar_advertised = False  # whether every answer names that address to clients
        self.pulsar_tls_url = ""  # the same over TLS
        self.pulsar_tls_advertised = False
        self.http_url = ""  # of HTTP; "" if it is off
        self.https_url = ""
        self.own_url = ""  # the address of this process alone, if several share the others

    # -- what may change while the server runs

    def apply_limits(self, limits: Limits) -> None:
        """Use other limits from now on; what a connection was given at its beginning stays until its end."""
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
        """Use other credentials and permissions; whatever outlasts a request is checked again."""
        if self.auth is None:
            return
        auth.permissions.replace(self.auth.permissions)
        self.auth = auth
        self.permission_watches.review()

    # -- what endpoints ask

    def allowance(self, role: str | None, address: str) -> Allowance | None:
        """How much a role may do, or an address without one; None: without bound."""
        if self.rates is None:
            return None
        return self.rates.of(address, "address") if role is None else self.rates.of(role)

    @property
    def challenges(self) -> list[tuple[bytes, bytes]]:
        """The headers of an answer with 401."""
        texts = ("Bearer",) if self.auth is None else self.auth.challenges
        return [(b"www-authenticate", text.encode()) for text in texts]

    async def may_see_metrics(self, authorization: bytes | None, scope: Mapping[str, Any]) -> None:
        """Raise UNAUTHENTICATED unless the client may see /metrics: any role, and every client where it is so
        configured."""
        if self.auth is not None and not self.auth.open_metrics:
            await self.auth.of_http(authorization, scope)
