"""What a connection makes of bytes, and of answers: over a transport that only notes what it is told."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.model.errors import PenstockError
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.limits import Limits
from penstock.protocols.load import Load
from penstock.protocols.rates import SCOPE_KEY
from penstock.server.config import HttpSettings
from penstock.server.connections import HttpConnection
from penstock.server.deadlines import LINGER_S
from penstock.server.state import State

HEAD = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\ncontent-length: "
BODY_MAX = 1000

Serve = Callable[[Exchange], Awaitable[None]]


class Transport:
    """Notes what is written, and whether it is read and open."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = self.paused = self.ended = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name)

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def connected(serve: Serve, **limits: Any) -> tuple[HttpConnection, Transport]:
    app = SimpleNamespace(serve=serve)
    state = State(app, HttpSettings(keep_alive_s=5), Limits(**limits), Load(10, 10, 1 << 20))
    state.set_date("today")
    connection = HttpConnection(state)
    transport = Transport()
    connection.connection_made(cast(Any, transport))
    return connection, transport


async def echo(exchange: Exchange) -> None:
    await exchange.answer(await exchange.body(BODY_MAX))


def post(body: bytes, *lines: bytes) -> bytes:
    lines = (b"POST /t HTTP/1.1", b"host: a", *lines, b"content-length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("cut", [1, 1000])
async def test_a_trailer_is_no_header(cut: int) -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def note(exchange: Exchange) -> None:
        body = await exchange.body(BODY_MAX)
        seen.append(list(exchange.scope["headers"]))
        await exchange.answer(body)

    connection, transport = connected(note)
    sent = b"\r\n".join(
        (
            *(b"POST /t HTTP/1.1", b"host: a", b"transfer-encoding: chunked", b"", b"2", b"ab", b"0"),
            *(b"X-Original-Principal: root", b"Expect: 100-continue", b"Authorization: Bearer x", b"", b""),
        )
    )
    for _ in range(2):
        for at in range(0, len(sent), cut):
            connection.data_received(sent[at : at + cut])
        await turns()
    assert seen == [[(b"host", b"a"), (b"transfer-encoding", b"chunked")]] * 2
    assert b"".join(transport.written).count(b"\r\n\r\nab") == 2


async def test_a_whole_answer_is_one_write() -> None:
    connection, transport = connected(echo)
    connection.data_received(post(b"abc"))
    await turns()
    assert transport.written == [HEAD + b"3\r\n\r\nabc"]
    assert not connection.server_state.tasks


async def test_a_body_comes_in_any_pieces() -> None:
    chunked = (
        b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    )
    for request in (post(b"abc"), chunked):
        for size in (1, 7, len(request)):
            connection, transport = connected(echo)
            for at in range(0, len(request), size):
                connection.data_received(request[at : at + size])
                await turns()
            assert transport.written == [HEAD + b"3\r\n\r\nabc"]


async def test_a_streamed_body_is_answered_as_it_comes_and_has_no_deadline() -> None:
    async def serve(exchange: Exchange) -> None:
        exchange.stream_body()
        await exchange.head(200)
        more = True
        while more:
            event = await exchange.receive()
            more = event["more_body"]
            await exchange.part(event["body"])
            exchange.settle(len(event["body"]))
        await exchange.end()

    connection, transport = connected(serve, body_ms=10)
    connection.data_received(b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    holding = connection._holding
    for number in range(20):
        connection.data_received(b"5\r\n%05d\r\n" % number)
        await turns()
        assert transport.written[-1].endswith(b"5\r\n%05d\r\n" % number)
        assert holding.received == 0
        connection.look(number * 100.0)
    connection.data_received(b"0\r\n\r\n")
    await turns()
    assert transport.written[-1] == b"0\r\n\r\n"
    assert not connection.server_state.tasks
    connection.look(2000.0)
    assert not transport.is_closing()


async def test_a_streamed_body_ends_when_the_server_stops() -> None:
    parts: list[bytes] = []

    async def serve(exchange: Exchange) -> None:
        exchange.stream_body()
        more = True
        while more:
            event = await exchange.receive()
            parts.append(event["body"])
            more = event["more_body"]
        await exchange.answer(b"3")

    connection, transport = connected(serve)
    connection.data_received(b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    await turns()
    connection.shutdown()
    connection.data_received(b"1\r\nb\r\n")
    await turns()
    assert parts == [b"a", b""]
    assert transport.written[-1].endswith(b"\r\n\r\n3")
    assert transport.ended
    assert not transport.is_closing(), "to close at once would reset a client that still sends"
    assert connection.lingers
    assert connection._holding.received == 0


async def test_parts_for_a_client_without_chunks_end_with_the_connection() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.head(200)
        await exchange.part(b"ab")
        await exchange.part(b"c")
        await exchange.end()

    connection, transport = connected(serve)
    connection.data_received(b"GET /t HTTP/1.0\r\n\r\n")
    await turns()
    answer = b"".join(transport.written)
    assert answer == b"HTTP/1.1 200 OK\r\ndate: today\r\nconnection: close\r\n\r\nabc"
    assert transport.is_closing()


async def test_an_upgrade_behind_an_unanswered_request_is_refused() -> None:
    done = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await exchange.head(200)
        await exchange.part(b"ab")
        await done.wait()
        await exchange.end()

    connection, transport = connected(serve)
    connection.data_received(b"GET /t HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    connection.data_received(
        b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    done.set()
    await turns()
    assert b"101" not in b"".join(transport.written)
    assert transport.ended
    assert not connection.server_state.tasks
    connection.connection_lost(None)


@pytest.mark.parametrize("answering", [False, True])
async def test_a_body_that_has_to_be_whole_ends_with_the_server_only_once_it_is_answered(
    answering: bool,
) -> None:
    """A process that passes a request on must not give half a body for a whole one."""
    parts: list[bytes] = []

    async def serve(exchange: Exchange) -> None:
        exchange.stream_body(whole=True)
        if answering:
            await exchange.head(200)
        more = True
        while more:
            event = await exchange.receive()
            parts.append(event["body"])
            more = event["more_body"]
        if not answering:
            await exchange.head(200)
        await exchange.end()

    connection, transport = connected(serve)
    connection.data_received(b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    await turns()
    connection.shutdown()
    await turns()
    assert transport.written[-1:] == ([b"0\r\n\r\n"] if answering else [])
    connection.data_received(b"1\r\nb\r\n0\r\n\r\n")
    await turns()
    assert b"".join(parts) == (b"a" if answering else b"ab")
    assert not connection.server_state.tasks


async def test_a_body_that_goes_on_after_its_answer_ends_the_connection() -> None:
    async def serve(exchange: Exchange) -> None:
        exchange.stream_body()
        await exchange.receive()
        await exchange.answer(b"enough")

    connection, transport = connected(serve)
    connection.data_received(b"POST /t HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    await turns()
    connection.look(1.0)
    assert not transport.is_closing()
    connection.look(1.0 + LINGER_S + 1)
    assert transport.is_closing()


async def test_requests_in_one_piece_are_answered_in_turn() -> None:
    release = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        body = await exchange.body(BODY_MAX)
        if body == b"1":
            await release.wait()
        await exchange.answer(body)

    connection, transport = connected(serve)
    connection.data_received(post(b"1") + post(b"2") + post(b"3"))
    await turns()
    assert transport.paused
    assert not transport.written
    release.set()
    await turns()
    assert [answer[-1:] for answer in transport.written] == [b"1", b"2", b"3"]
    assert not transport.paused


async def test_heads_have_the_length_of_what_they_do_not_show() -> None:
    connection, transport = connected(echo)
    connection.data_received(post(b"abc").replace(b"POST", b"HEAD"))
    await turns()
    assert transport.written == [HEAD + b"3\r\n\r\n"]


@pytest.mark.parametrize(
    ("request_", "closes"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\n\r\n", True),
    ],
)
async def test_connections_end_as_they_are_asked_to(request_: bytes, closes: bool) -> None:
    connection, transport = connected(echo)
    connection.data_received(request_)
    await turns()
    assert transport.closed == closes
    assert (b"connection: close\r\n" in transport.written[0]) == closes


async def test_an_answer_in_parts() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.head(200)
        if exchange.scope["path"] == "/slow":
            await turns()
        await exchange.part(b"ab")
        await exchange.part(b"c")
        await exchange.end()

    connection, transport = connected(serve)
    head = b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    assert transport.written == [head + b"2\r\nab\r\n", b"1\r\nc\r\n", b"0\r\n\r\n"]
    transport.written.clear()
    connection.data_received(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    await turns()
    assert transport.written[:2] == [head, b"2\r\nab\r\n"]  # nobody waits for a head


@pytest.mark.parametrize(
    ("length", "parts"), [(1, [b"ab"]), (3, [b"ab"])], ids=["more than announced", "less than announced"]
)
async def test_an_answer_of_another_length_ends_the_connection(length: int, parts: list[bytes]) -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.head(200, (b"content-length", b"%d" % length))
        for part in parts:
            await exchange.part(part)
        await exchange.end()

    connection, transport = connected(serve)
    connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    assert transport.closed


async def test_a_header_cannot_bring_another() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.whole(200, [(b"location", b"/a\r\nset-cookie: b=c")], b"")

    connection, transport = connected(serve)
    connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    assert transport.written[0].startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in b"".join(transport.written)
    assert transport.closed


async def test_what_is_answered_whatever_happens() -> None:
    async def fails(exchange: Exchange) -> None:
        raise ValueError("no")

    async def says_nothing(exchange: Exchange) -> None: ...

    for serve in (fails, says_nothing):
        connection, transport = connected(serve)
        connection.data_received(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await turns()
        assert transport.written[0].startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert transport.closed


async def test_a_client_that_waits_to_be_asked_for_its_body() -> None:
    connection, transport = connected(echo)
    request = post(b"abc", b"expect: 100-continue")
    connection.data_received(request[:-3])
    await turns()
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    connection.data_received(b"abc")
    await turns()
    assert transport.written[1:] == [HEAD + b"3\r\n\r\nabc"]


async def test_a_client_that_goes() -> None:
    gone: list[BaseException] = []

    async def serve(exchange: Exchange) -> None:
        try:
            await exchange.body(BODY_MAX)
        except ClientGoneError as error:
            gone.append(error)

    connection, transport = connected(serve)
    connection.data_received(post(b"abc")[:-1])
    await turns()
    connection.connection_lost(None)
    await turns()
    assert len(gone) == 1
    assert not transport.written


async def test_a_wait_learns_that_the_client_went() -> None:
    seen: list[str] = []

    async def serve(exchange: Exchange) -> None:
        await exchange.body(BODY_MAX)
        seen.append((await exchange.receive())["type"])

    connection, _ = connected(serve)
    connection.data_received(post(b"abc"))
    await turns()
    assert not seen
    connection.connection_lost(None)
    await turns()
    assert seen == ["http.disconnect"]


async def test_who_waits_is_called_when_the_client_goes() -> None:
    gone: list[str] = []
    release = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await exchange.body(BODY_MAX)
        assert exchange.call_when_gone(lambda: gone.append("waits no more"))
        exchange.call_when_gone(None)
        assert exchange.call_when_gone(lambda: gone.append("waits"))
        await release.wait()
        exchange.call_when_gone(lambda: gone.append("comes late"))

    connection, transport = connected(serve)
    connection.data_received(post(b"abc"))
    await turns()
    assert not transport.paused
    assert not gone
    connection.connection_lost(None)
    assert gone == ["waits"]
    release.set()
    await turns()
    assert gone == ["waits", "comes late"]


async def test_a_body_that_is_too_large() -> None:
    refused: list[PenstockError] = []

    async def serve(exchange: Exchange) -> None:
        try:
            await exchange.body(2)
        except PenstockError as error:
            refused.append(error)
            await exchange.answer(b"no", 413)

    for request in (
        post(b"abc"),
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ):
        connection, transport = connected(serve)
        connection.data_received(request)
        await turns()
        assert transport.written[0].startswith(b"HTTP/1.1 413 ")
    assert len(refused) == 2


async def test_an_idle_connection_ends_in_time() -> None:
    connection, transport = connected(echo)
    connection.data_received(post(b"abc"))
    now = connection.loop.time()
    connection.look(now + 4)
    await turns()
    connection.look(now + 4)
    assert not transport.closed
    connection.look(now + 6)
    assert transport.closed


async def test_what_a_request_carries_counts_in_its_allowance() -> None:
    taken: list[int] = []
    allowance = SimpleNamespace(take=lambda requests, size: taken.append(size))

    async def serve(exchange: Exchange) -> None:
        exchange.scope[SCOPE_KEY] = allowance
        await echo(exchange)

    connection, _ = connected(serve)
    connection.data_received(post(b"abc"))
    await turns()
    assert taken == [3, 3]


@pytest.mark.parametrize("missing", [0, 1])
async def test_a_connection_that_is_lost_is_known_to_nobody(missing: int) -> None:
    """Not to its own request either, whose body was being waited for: the collector might be long in coming."""

    async def serve(exchange: Exchange) -> None:
        with suppress(ClientGoneError):
            await echo(exchange)

    connection, _ = connected(serve)
    state = connection.server_state
    known = weakref.ref(connection)
    request = post(b"abc")
    gc.disable()
    try:
        connection.data_received(request[: len(request) - missing])
        await turns()
        connection.look(connection.loop.time())
        connection.connection_lost(None)
        assert connection.request is None
        del connection
        await turns()
        assert known() is None
        assert not state.connections
    finally:
        gc.enable()


async def test_what_is_not_http() -> None:
    connection, transport = connected(echo)
    connection.data_received(b"\x00\x01\r\n\r\n")
    assert transport.written[0].startswith(b"HTTP/1.1 400 Bad Request\r\ndate: today\r\n")
    assert transport.closed


async def test_one_task_answers_all_requests_of_a_connection() -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    async def serve(exchange: Exchange) -> None:
        tasks.append(asyncio.current_task())
        await echo(exchange)
        if len(tasks) == 3:
            await asyncio.Event().wait()  # goes on after its answer

    connection, transport = connected(serve)
    for count in range(1, 6):
        connection.data_received(post(b"abc"))
        await turns()
        assert len(transport.written) == count
    one, other = tasks[0], tasks[-1]
    assert tasks == [one, one, one, other, other]
    assert one is not None
    assert other is not None
    assert connection.server_state.tasks == {one}
    one.cancel()
    connection.connection_lost(None)
    await turns()
    assert one.done()
    assert other.done()
    assert not connection.server_state.tasks


async def test_a_task_that_was_cut_off_answers_no_more() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.body(BODY_MAX)
        if exchange.scope["path"] == "/slow":
            await asyncio.Event().wait()
        await exchange.answer(b"")

    connection, transport = connected(serve)
    connection.data_received(post(b"abc"))
    await turns()
    connection.data_received(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
    await turns()
    (task,) = connection.server_state.tasks
    task.cancel()
    await turns()
    assert task.done()
    assert transport.written[-1].startswith(b"HTTP/1.1 500 ")
    assert transport.closed


async def test_the_task_of_a_connection_that_is_shut_down_ends() -> None:
    release = asyncio.Event()

    async def serve(exchange: Exchange) -> None:
        await release.wait()
        await echo(exchange)

    for answered in (False, True):
        release.clear()
        connection, transport = connected(serve)
        connection.data_received(post(b"abc"))
        await turns()
        (task,) = connection.server_state.tasks
        if answered:
            release.set()
            await turns()
        connection.shutdown()
        release.set()
        await turns()
        assert task.done()
        assert transport.closed
