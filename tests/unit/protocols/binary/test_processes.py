"""Another process of the service that connects: it proves that it is, and may do everything."""

from typing import Any, Final

import pytest
from tests.unit.protocols.binary.handlers import TOPIC, ClientSession, sessions

from penstock.broker.fleet import PROCESS_METHOD
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.sessions import Asking, ProcessAuthentication
from penstock.model.secret import Secret
from penstock.testing.credentials import Issuer
from penstock.wire.pulsar_pb2 import (
    CommandConnect,
    CommandConnected,
    CommandError,
    CommandSubscribe,
    CommandSuccess,
    ServerError,
)

pytestmark = pytest.mark.anyio

SETTINGS: Final = Issuer().settings(super_users=("boss",), permissions={})


def connect(data: bytes) -> CommandConnect:
    return CommandConnect(
        client_version="test", protocol_version=21, auth_method_name=PROCESS_METHOD, auth_data=data
    )


def fleet_of(one: ClientSession, secret: str = "a secret of sixteen bytes") -> ProcessFleet:
    """The processes of the service of a session's server."""
    fleet = ProcessFleet(Secret(secret))
    one.session.context.fleet = fleet
    return fleet


def credentials(asked: ProcessFleet, asker: ProcessFleet) -> ProcessAuthentication:
    asking = Asking(asker.proof, asker.id, asked.id)
    assert asking.welcomed(asked.begin(asking.hello, 30))
    return ProcessAuthentication(asking)


def refusal(answer: Any) -> str:
    assert isinstance(answer, CommandError), answer
    assert answer.error == ServerError.AuthenticationError
    return str(answer.message)


async def test_a_process_may_consume_what_its_clients_may() -> None:
    async with sessions(auth=SETTINGS) as (one,):
        own = fleet_of(one)
        given = credentials(own, ProcessFleet(Secret("a secret of sixteen bytes")))
        assert isinstance(await one.ask(connect(given.data())), CommandConnected)
        assert one.session.of_process
        subscribe = CommandSubscribe(topic=TOPIC, subscription="s", request_id=7, subType=1, consumer_id=1)
        assert isinstance(await one.ask(subscribe), CommandSuccess)
        (handler,) = one.session.consumers.values()
        assert handler.consumer.options.forwarded


async def test_a_proof_is_accepted_once() -> None:
    async with sessions(count=3, auth=SETTINGS) as (one, two, three):
        own = fleet_of(one)
        given = credentials(own, ProcessFleet(Secret("a secret of sixteen bytes")))
        proof = given.data()
        assert isinstance(await one.ask(connect(proof)), CommandConnected)
        assert "before" in refusal(await two.ask(connect(proof)))
        assert two.output.closed
        assert isinstance(await three.ask(connect(given.data())), CommandConnected)


@pytest.mark.parametrize("auth", [SETTINGS, None])
async def test_clients_are_refused_at_the_address_for_processes(auth: Any) -> None:
    async with sessions(count=4, auth=auth) as (one, two, three, four):
        own = fleet_of(one)
        for each in (one, two, three, four):
            each.session.for_processes = True
        token = CommandConnect(client_version="test", auth_method_name="token", auth_data=b"x")
        for each, connecting in ((one, CommandConnect(client_version="test")), (two, token)):
            assert "another address" in refusal(await each.ask(connecting))
            assert each.output.closed
        assert "in a session" in refusal(await three.ask(connect(b"x y z w")))
        given = credentials(own, ProcessFleet(Secret("a secret of sixteen bytes")))
        assert isinstance(await four.ask(connect(given.data())), CommandConnected)


@pytest.mark.parametrize("auth", [SETTINGS, None])
async def test_a_wrong_proof_is_refused_also_without_authentication(auth: Any) -> None:
    """It is not taken for a client: what it asks for would be served as a process's."""
    async with sessions(count=2, auth=auth) as (one, two):
        assert "fleet.secret" in refusal(await one.ask(connect(b"x y z w")))
        fleet_of(two)
        assert "session" in refusal(await two.ask(connect(b"x y z w")))
        assert [each.session.of_process for each in (one, two)] == [False, False]
