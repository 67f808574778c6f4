"""Heads that come again: what is compared says the same as what is parsed."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.http.exchange import Exchange, Named
from penstock.server.connections import HttpConnection
from penstock.server.heads import HEAD_BYTES_MAX, HEADS_MAX, MISSES_MAX, Head, Heads

from .test_http1 import connected, post, turns

BODY_MAX = 1 << 20


def scope_of(length: int) -> dict[str, Any]:
    headers = [(b"host", b"a"), (b"content-length", b"%d" % length), (b"x", b"y")]
    return {"path": "/t", "headers": headers}


def sent(length: bytes, name: bytes = b"Content-Length", before: bytes = b"") -> bytes:
    return before + b"POST /t HTTP/1.1\r\nHost: a\r\n" + name + b": " + length + b"\r\nX: y\r\n\r\n"


def remembering(length: int = 3) -> Heads:
    heads = Heads()
    heads.remember(sent(b"%d" % length) + b"a" * length, length, scope_of(length), Named(length=length))
    return heads


def test_the_same_head_with_any_length_of_body() -> None:
    heads = remembering()
    for length in (3, 3, 12, 0, 3, 100_000):
        data = sent(b"%d" % length) + b"b" * length
        head = heads.find(data)
        assert head is not None
        assert head.sent == sent(b"%d" % length)
        assert head.named == Named(length=length)
        assert head.scope == scope_of(length)


@pytest.mark.parametrize(
    "data",
    [
        sent(b"3") + b"ab",  # not whole
        sent(b"3") + b"abcd",  # more than one request
        sent(b"3") + b"abc" + sent(b"3") + b"abc",
        sent(b"4") + b"abc",
        sent(b"+3") + b"abc",
        sent(b"3 ") + b"abc",
        sent(b"") + b"abc",
        sent(b"1_0") + b"a" * 10,
        sent(b"0000000003") + b"abc",
        sent("³".encode()) + b"abc",
        sent(b"3", name=b"content-length") + b"abc",
        sent(b"3")[:-2] + b"Y: z\r\n\r\nabc",
        sent(b"3")[:-4],
        b"",
    ],
)
def test_whatever_else_differs_is_parsed(data: bytes) -> None:
    assert remembering().find(data) is None


@pytest.mark.parametrize(
    ("data", "length", "headers"),
    [
        (sent(b"3") + b"abc", -1, []),  # the length that was read is another
        (sent(b"3", before=b"\r\n\r\n") + b"abc", 3, []),
        (sent(b"3", name=b"Content-Length:") + b"abc", 3, []),
        (sent(b"3").replace(b"X: y", b"Content-Length: 3") + b"abc", 3, []),
        (sent(b"3") + b"abc", 3, [(b"transfer-encoding", b"chunked")]),
        (sent(b"3") + b"abc", 3, [(b"expect", b"100-continue")]),
        (sent(b"3").replace(b"y", b"y" * HEAD_BYTES_MAX) + b"abc", 3, []),
    ],
)
def test_what_is_not_remembered(data: bytes, length: int, headers: list[tuple[bytes, bytes]]) -> None:
    heads = Heads()
    scope = scope_of(3)
    scope["headers"] += headers
    heads.remember(data, 3, scope, Named(length=length))
    assert heads.find(data) is None


def test_heads_that_never_come_again_are_remembered_for_a_while_only() -> None:
    heads = Heads()
    made = [sent(b"0").replace(b"y", b"%d" % number) for number in range(MISSES_MAX + 1)]
    for one in made:
        heads.remember(one, 0, scope_of(0), Named(length=0))
    assert [heads.find(one) is not None for one in made].count(True) == HEADS_MAX
    assert heads.find(made[-1]) is None
    assert heads.find(made[-2]) is not None  # it came again
    heads.remember(made[-1], 0, scope_of(0), Named(length=0))
    assert heads.find(made[-1]) is not None


def test_a_head_without_a_body() -> None:
    data = b"GET /t HTTP/1.1\r\nhost: a\r\n\r\n"
    head = Head(data, {"headers": [(b"host", b"a")]}, Named())
    assert head.of(data) is head
    assert head.of(data + b"x") is None
    assert head.of(data[:-1]) is None


lines = st.lists(
    st.sampled_from(
        [
            b"Authorization: Bearer a",
            b"authorization: Bearer b",
            b"Content-Encoding: gzip",
            b"traceparent: 00-1-2-01",
            b"x-length: 7",
            b"Content-Type: application/json",
        ]
    ),
    max_size=3,
)
requests = st.tuples(
    st.sampled_from([b"/a", b"/a/b%20c", b"/b?token=c"]), lines, st.sampled_from([0, 1, 9, 10, 300])
)


def request_of(path: bytes, further: list[bytes], size: int) -> bytes:
    return post(b"x" * size, *further).replace(b"/t", path, 1)


@given(st.lists(requests, min_size=2, max_size=8))
def test_a_connection_sees_what_other_connections_see(many: list[tuple[bytes, list[bytes], int]]) -> None:
    async def run() -> None:
        seen: list[object] = []

        async def serve(exchange: Exchange) -> None:
            body = await exchange.body(BODY_MAX, encoded=True)
            named = exchange.authorization, exchange.encoding, exchange.length, exchange.trace()
            seen.append(({**exchange.scope}, named, exchange.keep_alive, body))  # type: ignore[attr-defined]
            exchange.scope["changed"] = True
            await exchange.answer(b"")

        async def send(connection: HttpConnection, data: bytes) -> None:
            connection.app_state = {}
            connection.data_received(data)
            await turns()

        one, transport = connected(serve)
        for request in many:
            await send(one, request_of(*request))
        assert len(transport.written) == len(many)
        together, seen[:] = list(seen), []
        for request in many:
            await send(connected(serve)[0], request_of(*request))
        assert together == seen

    asyncio.run(run())


async def test_a_repeated_request_is_not_parsed_and_one_after_it_is() -> None:
    bodies: list[bytes] = []

    async def serve(exchange: Exchange) -> None:
        bodies.append(await exchange.body(BODY_MAX))
        await exchange.answer(b"")

    connection, transport = connected(serve)
    connection.data_received(post(b"1"))
    await turns()
    assert connection.repeated(post(b"1")) is not None
    connection, transport = connected(serve)
    for data in (post(b"a"), post(b"bc"), post(b"def")[:-1]):
        connection.data_received(data)
        await turns()
    assert connection.repeated(post(b"a")) is None  # it would be part of a body
    connection.data_received(b"f" + post(b"g") + post(b"h"))
    await turns()
    connection.data_received(post(b"ij"))
    await turns()
    assert bodies == [b"1", b"a", b"bc", b"def", b"g", b"h", b"ij"]
    assert not transport.closed


@pytest.mark.parametrize("empty", [b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n"])
async def test_empty_lines_after_a_request_are_none(empty: bytes) -> None:
    seen: list[str] = []

    async def serve(exchange: Exchange) -> None:
        seen.append(exchange.method)
        await exchange.answer(b"")

    connection, _ = connected(serve)
    for data in (b"DELETE /t HTTP/1.1\r\nhost: a\r\n\r\n", empty, empty, empty, post(b"a"), empty, empty):
        connection.data_received(data)
        await turns()
    assert seen == ["DELETE", "POST"]


async def test_a_request_whose_predecessor_is_not_answered_waits() -> None:
    release = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        body = await exchange.body(BODY_MAX)
        if body == b"2":
            await release.wait()
        await exchange.answer(body)

    connection, transport = connected(serve)
    for body in (b"1", b"2", b"3"):
        connection.data_received(post(body))
        await turns()
    assert [answer[-1:] for answer in transport.written] == [b"1"]
    release.set()
    await turns()
    assert [answer[-1:] for answer in transport.written] == [b"1", b"2", b"3"]


async def test_a_repeated_body_counts_until_it_is_answered_and_is_refused_beyond_the_bound() -> None:
    held: list[int] = []

    async def serve(exchange: Exchange) -> None:
        held.append(load.held)
        await exchange.answer(b"")

    connection, transport = connected(serve)
    load = connection.server_state.load
    for size in (3, 3, 500):
        connection.data_received(post(b"x" * size))
        await turns()
        assert load.held == 0
    assert held == [3, 3, 500]
    load.bytes_max = 10
    connection.data_received(post(b"x" * 400))
    await turns()
    assert len(held) == 3
    assert transport.written[-1].startswith(b"HTTP/1.1 5"), transport.written[-1]
    assert transport.closed
    assert load.held == 0
