"""What a request that is passed on says of its client, to the process that answers it."""

from typing import Any

from penstock.broker.fleet import ForwardedRequest
from penstock.protocols.auth.principal import scope_role
from penstock.protocols.forwarding import _request_of, forwarded_scope
from penstock.protocols.http.exchange import Exchange


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
