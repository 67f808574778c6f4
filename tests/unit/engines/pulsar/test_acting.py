"""One connection to the cluster, one caller, one token."""

from typing import Any

import pytest

from penstock.broker.acting import ACTING, Acting
from penstock.broker.cluster import ClusterTraits
from penstock.client.authentication import Authentication
from penstock.engines.pulsar.cluster import IDLE_MS, ActingClusters, PulsarCluster
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.caller import Caller
from penstock.testing.clock import ManualClock
from penstock.testing.credentials import Issuer

ISSUER = Issuer()


class StubContext:
    """The connections of one caller."""

    def __init__(self, authentication: Authentication) -> None:
        self.authentication = authentication
        self.idle = True
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class StubCluster(PulsarCluster):
    """A cluster that callers reach by their tokens, or by their roles; nothing is connected."""

    def __init__(self, act_for: str = "token") -> None:
        self.traits = ClusterTraits(
            kind="pulsar",
            administered=True,
            acts_for_callers=act_for != "server",
            wants_tokens=act_for == "token",
        )
        self.authentication = Authentication()
        self.runtime = {}
        self.admin: Any = None
        self.timeout_s = 1.0

    def context_of(self, authentication: Authentication) -> StubContext:  # type: ignore[override]
        return StubContext(authentication)


class Bench:
    def __init__(self, act_for: str = "token") -> None:
        self.clock = ManualClock()
        cluster: Any = StubCluster(act_for)
        self.clusters = ActingClusters(cluster, self.clock)

    def context(self, role: str, token: str) -> StubContext:
        found: Any = self.clusters.of(Acting(role, Secret(token))).context
        return found  # type: ignore[no-any-return]  # a stub


def test_each_token_of_a_role_has_its_own_connections() -> None:
    bench = Bench()
    one, two = bench.context("app", "one"), bench.context("app", "two")
    assert [bench.context("app", token) for token in ("one", "two", "one")] == [one, two, one]
    # The later one does not change what the first one shows when it connects again.
    assert (one.authentication.data(), two.authentication.data()) == (b"one", b"two")


def test_what_is_cached_for_a_caller_is_that_of_its_token() -> None:
    keys = {Acting(role, Secret(token)).key for role in ("a", "b") for token in ("", "one", "two")}
    assert len(keys) == 6
    assert not any("one" in key for key in keys)
    assert Acting("a").key == "a"
    assert Acting("a", proxy="p").key not in {"a", "p"}


def test_without_a_token_of_its_own_a_caller_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"own token of 'app' \(engine\.act_for = 'token'\)") as refused:
        Bench().clusters.of(Acting("app"))
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED


def test_by_role_the_token_does_not_matter() -> None:
    bench = Bench("principal")
    assert bench.context("app", "") is bench.context("app", "")
    assert bench.context("app", "").authentication.original_principal == "app"


async def test_connections_without_use_are_closed() -> None:
    bench = Bench()
    used, unused = bench.context("app", "used"), bench.context("app", "unused")
    used.idle = False
    await bench.clock.advance(IDLE_MS)
    await bench.clusters.sweep()
    assert not unused.closed
    await bench.clock.advance(1)
    await bench.clusters.sweep()
    assert (used.closed, unused.closed) == (False, True)
    assert bench.context("app", "used") is used
    assert bench.context("app", "unused") is not unused


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.pulsar.cluster.CALLERS_MAX", 2)
    bench = Bench()
    for token in ("one", "two", "one"):
        bench.context("app", token)
    with pytest.raises(PenstockError) as refused:
        bench.context("app", "three")
    assert refused.value.kind is ErrorKind.TOO_MANY_REQUESTS


class StubNamespaces:
    """As far as permissions ask."""

    def __init__(self) -> None:
        self.listeners: list[object] = []


class StubBroker:
    """As far as authentication and admission ask."""

    def __init__(self, act_for: str) -> None:
        self.clock = ManualClock()
        self.cluster = StubCluster(act_for)
        self.namespaces = StubNamespaces()


class StubServer:
    """As far as admission asks."""

    draining = False
    rates = None
    audit: Any = None

    def __init__(self, act_for: str = "token") -> None:
        self.broker: Any = StubBroker(act_for)
        self.workers = None
        settings = ISSUER.settings(proxy_roles=("proxy",), anonymous_role="guest")
        self.auth = authenticator(settings, self.broker)


async def acting_of(server: StubServer, authorization: str = "", **scope: Any) -> Acting | None:
    """For whom the cluster is reached by a request."""
    context: Any = server
    await Caller.admit(context, authorization.encode() or None, {"headers": (), **scope})
    return ACTING.get()


async def test_a_request_acts_with_the_token_that_it_shows() -> None:
    server, token = StubServer(), ISSUER.token("app")
    own = Acting("app", Secret(token))
    assert await acting_of(server, f"Bearer {token}") == own
    assert await acting_of(server, query_string=f"token={token}".encode()) == own
    # Pulsar's proxy hands on the client's own credentials, with its name beside them.
    named = ((b"x-original-principal", b"app"),)
    assert await acting_of(server, f"Bearer {token}", headers=named) == own
    assert await acting_of(server) == Acting("guest")


async def test_the_token_of_a_proxy_is_not_that_of_whom_it_acts_for() -> None:
    authorization, named = f"Bearer {ISSUER.token('proxy')}", ((b"x-original-principal", b"app"),)
    assert await acting_of(StubServer(), authorization, headers=named) == Acting("app", proxy="proxy")
    assert await acting_of(StubServer("principal"), authorization, headers=named) == Acting(
        "app", proxy="proxy"
    )
    assert await acting_of(StubServer("principal"), f"Bearer {ISSUER.token('app')}") == Acting("app")
