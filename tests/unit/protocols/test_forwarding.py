"""What a request that is passed on says of its client, to the process that answers it."""

import asyncio
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.fleet import Caller as Client
from penstock.broker.fleet import ForwardedRequest
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.principal import scope_role
from penstock.protocols.caller import PROCESS_KEY, Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.forwarding import _request_of, forwarded_scope
from penstock.protocols.http.exchange import Exchange
from penstock.testing.credentials import Issuer


def scope(**more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "query_string": b"x=1",
        "scheme": "https",
        "client": ("192.0.2.7", 4711),
        "headers": [(b"host", b"queue.example"), (b"connection", b"close, X-Hop"), (b"x-hop", b"1")],
        "state": {"peercert": {"subject": ((("commonName", "ann"),),)}, "kept": 1},
        **more,
    }


async def passed_on(given: dict[str, Any]) -> ForwardedRequest:
    return await _request_of(Exchange(given), lambda: None, None)


async def test_the_client_is_that_of_the_process_that_was_asked() -> None:
    request = await passed_on(scope())
    assert request.target == b"/a%20b?x=1"
    assert list(request.headers) == []
    own = Exchange(
        scope(
            client=("10.0.0.1", 1),
            scheme="http",
            headers=[(b"host", b"10.0.0.2:8080"), (b"accept", b"*/*")],
            state={"kept": 2, "peercert": {"subject": ((("commonName", "a process"),),)}},
        )
    )
    forwarded_scope(own, request.caller)
    found = own.scope
    assert found["client"] == ("192.0.2.7", 4711)
    assert found["scheme"] == "https"
    assert found["headers"] == [(b"host", b"queue.example"), (b"accept", b"*/*")]
    assert found["state"]["kept"] == 2
    assert scope_role(found) == "ann"


async def test_a_client_without_a_certificate_has_none_there() -> None:
    """The certificate of the process that passes a request on is not the client's."""
    request = await passed_on(scope(state={}, client=None))
    own = Exchange(scope(client=("10.0.0.1", 1)))
    forwarded_scope(own, request.caller)
    assert scope_role(own.scope) is None
    assert own.scope["client"] is None
    assert PROCESS_KEY not in own.scope


async def test_a_process_that_asks_for_itself_needs_no_credentials() -> None:
    issuer = Issuer()
    async with bench() as made:
        auth = authenticator(issuer.settings(super_users=("boss",)), made.broker)
        context = ServerContext(made.broker, auth=auth)
        own = Exchange(scope())
        with pytest.raises(PenstockError) as refused:
            await Caller.admit(context, None, own.scope)
        assert refused.value.kind is ErrorKind.UNAUTHENTICATED
        forwarded_scope(own, Client(process=True))
        assert own.scope["client"] == ("192.0.2.7", 4711)
        async with asyncio.TaskGroup() as group:
            admitting = group.create_task(admitted(context, own))
        admitting.result().may_consume(TOPIC, "s")
    assert not FOR_PROCESS.get(), "for that request alone"


async def admitted(context: ServerContext, exchange: Exchange) -> Caller:
    """The caller of a request, in its task."""
    who = await Caller.admit(context, None, exchange.scope)
    assert FOR_PROCESS.get()
    return who
