"""Whom a cluster's admin REST sees when a request is passed on to it."""

from collections.abc import Iterator
from typing import Literal

import pytest
from tests.support.admin_stub import AdminStub, Given, admin_stub

from penstock.broker.acting import Acting
from penstock.broker.settings import ClusterSettings
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.model.target import Target

TARGET = Target.of("admin", "v2", "clusters")
ALICE = Acting("alice", Secret("token of alice"))
FORGED = ((b"X-Original-Principal", b"root"), (b"Authorization", b"Bearer of alice"))
Act = Literal["principal", "token", "server"]


@pytest.fixture
def stub() -> Iterator[AdminStub]:
    with admin_stub() as made:
        yield made


def cluster_before(stub: AdminStub, act_for: Act) -> PulsarCluster:
    return PulsarCluster(
        ClusterSettings(
            url="pulsar://127.0.0.1:1",
            admin_url=stub.url,
            token=Secret("token of the server"),
            own_principal="itself",
            act_for=act_for,
        )
    )


@pytest.mark.parametrize(
    ("act_for", "caller", "token", "principal"),
    [
        ("principal", ALICE, "token of the server", "alice"),
        ("principal", None, "token of the server", "itself"),
        ("token", ALICE, "token of alice", None),
        ("token", None, "token of the server", "itself"),
        ("server", ALICE, "token of the server", "itself"),
        ("server", None, "token of the server", "itself"),
    ],
)
async def test_who_asks(
    stub: AdminStub, act_for: Act, caller: Acting | None, token: str, principal: str | None
) -> None:
    cluster = cluster_before(stub, act_for)
    answer = await cluster.request("GET", TARGET, [], FORGED, caller=caller)
    await cluster.close()
    assert answer.status == 200
    (sent,) = stub.sent
    assert sent.headers["authorization"] == f"Bearer {token}"
    assert sent.headers.get("x-original-principal") == principal


async def test_a_caller_without_a_token_is_not_the_server(stub: AdminStub) -> None:
    cluster = cluster_before(stub, "token")
    with pytest.raises(PenstockError) as refused:
        await cluster.request("GET", TARGET, caller=Acting("alice"))
    await cluster.close()
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    assert stub.sent == []


async def test_a_token_that_the_cluster_refuses_is_its_callers(stub: AdminStub) -> None:
    stub.answer = lambda _: Given(401, b"<html></html>")
    cluster = cluster_before(stub, "token")
    with pytest.raises(PenstockError, match="refuses the token of 'alice'") as refused:
        await cluster.request("GET", TARGET, caller=ALICE)
    await cluster.close()
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED
