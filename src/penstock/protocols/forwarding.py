"""A request that another process of the service has to answer is passed on to it, and its answer comes back.

The client's credentials, its body and the answer pass as they are, in bounded parts. The other process gets the client's
address and serves the request as if the client had come there. A request is passed on once: one that was passed on to this
process is answered here or not at all.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from penstock.broker.fleet import FORWARDED, Fleet, ForwardedAnswer, ForwardedRequest
from penstock.broker.fleet import Caller as Client
from penstock.model.errors import ErrorKind, PenstockError

from .auth.principal import scope_role
from .caller import PROCESS_KEY
from .http.answers import Header
from .http.exchange import ClientGoneError, Exchange
from .http.paths import PREFIX_KEY
from .load import network_of
from .rates import SCOPE_KEY

HEAD_S: Final = 45.0  # for an answer to begin, in addition to the time of a poll; longer than a cluster may take (engine.timeout_ms)
# Of one connection (RFC 9110 7.6.1); `expect` is answered by the process that the client reached.
_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
        b"expect",
        b"host",  # the request has that of the other process; the client's is in `Client`
        FORWARDED,
        b"transfer-encoding",
    )
)
_ASKED: Final = _HOP | {b"content-length"}  # of a request: this process frames the body that it sends
_OWN: Final = _HOP | {b"date"}  # of an answer: the date is that of this process's own
_BRIEF: Final = (b"/admin/", b"/lookup/", b"/metrics", b"/health/")  # paths of requests that wait for nothing
# `Connection` removes none of these: they say how long a body is and what it is, and who the client is.
_KEPT: Final = (b"content-", b"authorization", b"x-original-principal", b"host", b"penstock-")


class StoppingError(Exception):
    """This process stops before another one has answered a request."""


class Waits:
    """Requests that wait for answers of other processes, so that this process can end the waits when it stops."""

    def __init__(self) -> None:
        self._waits: dict[asyncio.Timeout, Exchange] = {}

    @asynccontextmanager
    async def hold(self, exchange: Exchange) -> AsyncIterator[None]:
        """Wait in this context; raises StoppingError once `end` is called, if no answer has begun."""
        try:
            async with asyncio.timeout(None) as wait:
                self._waits[wait] = exchange
                try:
                    yield
                finally:
                    del self._waits[wait]
        except TimeoutError:
            if exchange.started:
                raise
            raise StoppingError from None

    def end(self, which: Callable[[Exchange], bool] = lambda exchange: True) -> None:
        """End the waits of these requests."""
        for wait, exchange in self._waits.items():
            if which(exchange):
                wait.reschedule(asyncio.get_running_loop().time())


async def forward(
    fleet: Fleet, process: str, exchange: Exchange, wait_s: float = 0.0, body: bytes | None = None
) -> None:
    """Answer a request with what another process answers. `wait_s`: for how long the request itself may wait there; `body`:
    its body without a content encoding, if it was read.

    Raises ProcessGoneError, UNAVAILABLE if the process does not answer, MISDIRECTED for a request that was passed on to this
    process, BAD_PARAMETER for a length that is no number, ClientGoneError.
    """
    if exchange.forwarded is not None:
        raise PenstockError(
            ErrorKind.MISDIRECTED, f"the request was passed on once, and process {process} has to answer it"
        )
    try:
        async with asyncio.timeout(None) as until_gone:

            def watch() -> None:
                exchange.call_when_gone(gone)

            def gone() -> None:
                until_gone.reschedule(asyncio.get_running_loop().time())

            request = await _request_of(exchange, watch, body)
            async with fleet.send(process, request, wait_s + HEAD_S) as answer:
                await _relay(exchange, answer)
    except TimeoutError:
        raise ClientGoneError from None
    finally:
        exchange.call_when_gone(None)


def forwarded_scope(exchange: Exchange, client: Client) -> None:
    """Have a request that was passed on to this process be that of the client, as the other process saw it, or that of the process
    itself."""
    scope = exchange.scope
    if client.process:
        scope[PROCESS_KEY] = True
        return
    subject = () if client.role is None else ((("commonName", client.role),),)
    scope["client"] = (client.address, client.port) if client.address else None
    scope["scheme"] = client.scheme
    scope[PREFIX_KEY] = client.prefix
    scope["state"] = {**scope.get("state", {}), "peercert": {"subject": subject}}
    host = client.host.encode("latin-1")
    scope["headers"] = [(name, host if name == b"host" else value) for name, value in scope["headers"]]


async def _request_of(exchange: Exchange, watch: Callable[[], None], body: bytes | None) -> ForwardedRequest:
    """The request; `watch` is called once its body was read, whole. The client's framing of the body is not passed on."""
    scope = exchange.scope
    address, port = scope.get("client") or ("", 0)
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    headers = _passed(scope["headers"], _ASKED)
    names = {name for name, _ in scope["headers"]}
    chunked, announced = b"transfer-encoding" in names, b"content-length" in names
    if announced and exchange.length < 0:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the Content-Length is not a number")
    if body is not None:
        headers = [one for one in headers if one[0] != b"content-encoding"]
        whole: bytes | None = body
    else:
        whole = exchange.buffered() if exchange.length > 0 or chunked else b""
        if whole and SCOPE_KEY in scope:
            await exchange.spend(len(whole), more=False)
    if whole is not None:
        watch()
        if whole or chunked or announced or body is not None:
            headers.append((b"content-length", b"%d" % len(whole)))
    elif chunked:
        headers.append((b"transfer-encoding", b"chunked"))
    else:
        headers.append((b"content-length", b"%d" % exchange.length))
    return ForwardedRequest(
        method=exchange.method.encode(),
        target=path + b"?" + query if query else path,
        headers=headers,
        body=_parts(exchange, watch) if whole is None else whole,
        client=scope_role(scope) or network_of(address),
        lasts=whole is None or not path.startswith(_BRIEF),
        caller=Client(
            address=address,
            port=port or 0,
            scheme=scope.get("scheme", "http"),
            host=exchange.header(b"host") or "",
            role=scope_role(scope),
            prefix=scope.get(PREFIX_KEY, ""),
        ),
    )


def _passed(headers: Iterable[Header], dropped: frozenset[bytes]) -> list[Header]:
    """Headers without those of the connection, and without those that `Connection` names and may name."""
    given = list(headers)
    named = {
        token
        for name, value in given
        if name == b"connection"
        for token in (each.strip(b" \t").lower() for each in value.split(b","))
        if not token.startswith(_KEPT)
    }
    return [(name, value) for name, value in given if name not in dropped and name not in named]


async def _parts(exchange: Exchange, watch: Callable[[], None]) -> AsyncIterator[bytes]:
    """The body as it comes; the process that it goes to decides how long it may take. Raises ClientGoneError, and UNAVAILABLE if this
    process stops within a body of announced length."""
    exchange.stream_body(whole=True)
    more, size = True, 0
    while more:
        event = await exchange.receive()
        if event["type"] == "http.disconnect":
            raise ClientGoneError
        more = event.get("more_body", False)
        if not more:
            watch()
        part = event.get("body", b"")
        size += len(part)
        if not more and size < exchange.length:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        yield part
        exchange.settle(len(part))


async def _relay(exchange: Exchange, answer: ForwardedAnswer) -> None:
    headers = _passed(answer.headers, _OWN)
    await exchange.head(answer.status, *headers)
    while part := await answer.part():
        await exchange.part(part)
    await exchange.end()
