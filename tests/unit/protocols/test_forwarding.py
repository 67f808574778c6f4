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
from penstock.protocols.http.exchange import Event, Exchange
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


async def test_a_client_whose_request_follows_on_the_connection_is_no_process() -> None:
    """One task answers all requests of a connection, those of a process and those that it passes on."""
    async with bench() as made:
        context = ServerContext(made.broker)
        own, passed_on = Exchange(scope()), Exchange(scope())
        forwarded_scope(own, Client(process=True))
        forwarded_scope(passed_on, Client(address="192.0.2.7"))

        async def answer_both() -> bool:
            await admitted(context, own)
            await Caller.admit(context, None, passed_on.scope)
            return FOR_PROCESS.get()

        async with asyncio.TaskGroup() as group:
            answering = group.create_task(answer_both())
        assert not answering.result()


async def admitted(context: ServerContext, exchange: Exchange) -> Caller:
    """The caller of a request, in its task."""
    who = await Caller.admit(context, None, exchange.scope)
    assert FOR_PROCESS.get()
    return who


@pytest.mark.parametrize("length", [b"5", b"0000000000000000000005", b"5 ", b"5\t", b" 5"])
async def test_the_body_is_framed_by_this_process(length: bytes) -> None:
    """However the client framed it, and whatever it says of the headers of its connection."""
    given = [
        (
            b"connection",
            b"Content-Length, content-type, AUTHORIZATION, x-original-principal, host, penstock-x, x-mine",
        ),
        (b"content-length", length),
        (b"content-type", b"text/plain"),
        (b"authorization", b"Bearer x"),
        (b"x-original-principal", b"ann"),
        (b"penstock-x", b"1"),
        (b"x-mine", b"1"),
    ]
    kept = [given[2], given[3], given[4], given[5]]
    exchange = Exchange(scope(method="POST", headers=given))
    assert exchange.length == 5
    request = await _request_of(exchange, lambda: None, None)
    assert not isinstance(request.body, bytes)
    assert request.headers == [*kept, (b"content-length", b"5")]
    for body in (b"", b"whole"):  # it was read, perhaps decompressed
        request = await _request_of(exchange, lambda: None, body)
        assert (request.body, request.headers) == (body, [*kept, (b"content-length", b"%d" % len(body))])
    chunks = scope(method="POST", headers=[given[1], (b"transfer-encoding", b"identity, Chunked")])
    assert (await passed_on(chunks)).headers == [(b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize("length", [b"", b"x", b"-1", b"+5", b"5, 5", b"0x5", b"5_0"])
async def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    with pytest.raises(PenstockError) as raised:
        await passed_on(scope(method="POST", headers=[(b"content-length", length)]))
    assert raised.value.kind is ErrorKind.BAD_PARAMETER


async def test_half_a_body_of_announced_length_is_not_passed_on() -> None:
    """The other process would take the next request of the connection for the rest."""

    class Ending(Exchange):
        async def receive_event(self) -> Event:
            return {"type": "http.request", "body": b"ab", "more_body": False}

    async def parts(length: int) -> list[bytes]:
        exchange = Ending(scope(method="POST", headers=[(b"content-length", b"%d" % length)]))
        request = await _request_of(exchange, lambda: None, None)
        assert not isinstance(request.body, bytes)
        return [part async for part in request.body]

    assert await parts(2) == [b"ab"]
    with pytest.raises(PenstockError) as refused:
        await parts(3)
    assert refused.value.kind is ErrorKind.UNAVAILABLE
