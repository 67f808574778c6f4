"""Requests that one process passes on to another, over sockets: as they are, once, and for processes alone."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import httpx
import pytest
from tests.support.auth import AUDIENCE, issuer, token
from tests.support.rest import TOPIC, RestServer
from tests.support.waiting import until_async

from penstock.broker.fleet import FORWARDED, Process
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.protocols.forwarding import forward
from penstock.protocols.http.exchange import Exchange
from penstock.runtime.tasks import Tasks

SECRET = Secret("a secret that both processes know")
SUB = f"{TOPIC}/subscription/s"
MIB = 1024 * 1024

Handler = Callable[[Exchange], Awaitable[None]]


class Node(RestServer):
    """One process; its broker is its own, so that whatever another one answers was passed on."""

    listens = True
    fleet: ProcessFleet
    http: httpx.AsyncClient

    def serve(self, path: str, handler: Handler) -> None:
        """Have a handler serve what is below `/{path}/`."""
        self.app.asgi._endpoints[path] = handler  # type: ignore[index]

    @property
    def process(self) -> Process:
        return Process(id=self.fleet.id, url=self.url)


@asynccontextmanager
async def nodes(count: int = 2, **options: Any) -> AsyncIterator[list[Node]]:
    """Processes that know one another."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            node = await stack.enter_async_context(Node.open(fleet=ProcessFleet(SECRET), **options))
            node.http = await stack.enter_async_context(httpx.AsyncClient(base_url=node.url, timeout=60))
            made.append(node)
        for node in made:
            for other in made:
                node.fleet.learn(other.process)
        yield made


async def errors(response: httpx.Response) -> tuple[int, int]:
    return response.status_code, response.json()["error_code"]


async def parts_of(exchange: Exchange) -> list[bytes]:
    parts, more = [], True
    while more:
        event = await exchange.receive()
        assert event["type"] == "http.request"
        parts.append(event["body"])
        more = event["more_body"]
    return parts


class Echo:
    """Answers with what it got. `scopes` are those of its requests."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.gone = asyncio.Event()
        self.began = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.scopes.append(exchange.scope)
        self.began.set()
        match exchange.scope["path"]:
            case "/echo/parts":
                await exchange.head(201, (b"x-given", b"1"), (b"connection", b"x-hop"), (b"x-hop", b"1"))
                for part in await parts_of(exchange):
                    await exchange.part(part)
                await exchange.end()
            case "/echo/refused":
                raise PenstockError(ErrorKind.TOO_LARGE, "not so much")
            case "/echo/nothing":
                await exchange.whole(204, (), None)
            case "/echo/waits":
                exchange.call_when_gone(self.gone.set)
                await self.gone.wait()
            case "/echo/cut":
                await exchange.head(200, (b"content-length", b"100"))
                await exchange.part(b"half")
                raise RuntimeError("the process has a defect")
            case _:
                await exchange.answer(await exchange.body(100 * MIB), 200)


class Pair:
    """The first passes on everything at `/echo/`, and the second answers it."""

    def __init__(self, one: Node, other: Node) -> None:
        self.one, self.other, self.echo = one, other, Echo()
        one.serve("echo", self._forward)
        other.serve("echo", self.echo)

    async def _forward(self, exchange: Exchange) -> None:
        await forward(self.one.fleet, self.other.fleet.id, exchange)

    @classmethod
    @asynccontextmanager
    async def open(cls, **options: Any) -> AsyncIterator[Self]:
        async with nodes(2, **options) as (one, other):
            yield cls(one, other)


async def test_bodies_and_headers_pass_as_they_are() -> None:
    async with Pair.open() as pair:
        http = pair.one.http
        for size in (0, 1, 100_000, 4 * MIB):
            body = hashlib.sha256(b"%d" % size).digest() * (size // 32 + 1)
            answer = await http.post("/echo/whole?a=%2F&b=", content=body[:size])
            assert (answer.status_code, answer.content) == (200, body[:size])

        async def parts() -> AsyncIterator[bytes]:
            for number in range(200):
                yield bytes([number]) * 50_000

        answer = await http.post(
            "/echo/parts",
            content=parts(),
            headers={"Authorization": "Bearer x", "Connection": "X-Mine", "X-Mine": "1"},
        )
        assert answer.status_code == 201
        assert answer.content == b"".join([bytes([number]) * 50_000 for number in range(200)])
        assert answer.headers["x-given"] == "1"
        assert "x-hop" not in answer.headers
        assert len(answer.headers.get_list("date")) == 1
        scope = pair.echo.scopes[-1]
        headers = dict(scope["headers"])
        assert headers[b"authorization"] == b"Bearer x"
        assert headers[b"host"] == f"127.0.0.1:{pair.one.port}".encode()
        assert b"x-mine" not in headers
        assert pair.echo.scopes[1]["query_string"] == b"a=%2F&b="
        head = await http.head("/echo/whole")
        assert (head.status_code, head.content) == (200, b"")
        assert (await http.get("/echo/nothing")).status_code == 204
        assert {peer.sent for peer in pair.one.fleet} == {7}
        assert {peer.failed for peer in pair.one.fleet} == {0}


@pytest.mark.parametrize(
    "framing",
    [
        "Connection: content-length\r\nContent-Length: %d",
        "Content-Length: 00000000000000000000%d",
        "Content-Length: %d \t",
    ],
)
async def test_a_body_is_no_request_of_its_own(framing: str) -> None:
    """Whichever way its length is written: the other process reads it as the body that it is."""
    body = b"GET /echo/hidden HTTP/1.1\r\nHost: h\r\n\r\n"
    head = f"POST /echo/whole HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing % len(body)}\r\n\r\n".encode()
    async with Pair.open() as pair:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", pair.one.port)
            writer.write(head + body)
            async with asyncio.timeout(60):
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert await reader.readexactly(len(body)) == body
            writer.close()
            assert (await pair.one.http.get("/echo/next")).status_code == 200
        assert [scope["path"] for scope in pair.echo.scopes] == ["/echo/whole", "/echo/next"] * 2


async def test_the_other_process_sees_the_client_and_not_this_one() -> None:
    async with Pair.open() as pair:
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
        async with httpx.AsyncClient(transport=transport, base_url=pair.one.url) as http:
            assert (await http.get("/echo/whole")).status_code == 200
        assert pair.echo.scopes[0]["client"][0] == "127.0.0.9"


async def test_an_answer_before_the_end_of_the_body() -> None:
    async with Pair.open() as pair:

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b"x" * 10_000
                await asyncio.sleep(0)

        answer = await pair.one.http.post("/echo/refused", content=parts())
        assert await errors(answer) == (413, 41301)
        assert (await pair.one.http.get("/echo/whole")).status_code == 200


async def test_a_client_that_hangs_up_ends_the_request_that_was_passed_on() -> None:
    async with Pair.open() as pair:
        tasks = Tasks()
        async with httpx.AsyncClient(base_url=pair.one.url) as http:
            asked = tasks.spawn(http.get("/echo/waits"), "ask")
            async with asyncio.timeout(60):
                await pair.echo.began.wait()
                asked.cancel()
                await pair.echo.gone.wait()
        await until_async(lambda: not any(peer._links for peer in pair.one.fleet))


async def test_a_process_that_fails_within_an_answer_cuts_it() -> None:
    async with Pair.open() as pair:
        with pytest.raises(httpx.RemoteProtocolError):
            await pair.one.http.get("/echo/cut")
        assert (await pair.one.http.get("/echo/whole")).status_code == 200


async def test_connections_are_kept_and_one_that_was_closed_is_replaced() -> None:
    async with Pair.open() as pair:
        (peer,) = pair.one.fleet
        for _ in range(20):
            assert (await pair.one.http.get("/echo/whole")).status_code == 200
        (link,) = peer._links
        link.connection._transport.abort()  # as the other end does: it is noticed now, or as a request is sent
        assert (await pair.one.http.get("/echo/whole")).status_code == 200
        assert len(peer._links) == 1
        assert link not in peer._links
        pair.other.fleet._sessions._sessions.clear()  # forgotten, as after many others
        assert (await pair.one.http.post("/echo/whole", content=b"x")).content == b"x"
        assert await asyncio.gather(*(pair.one.http.get("/echo/whole") for _ in range(50)))
        assert 1 <= len(peer._links) <= 50


async def test_a_request_is_passed_on_once() -> None:
    async with nodes(2) as (one, other):
        for node, to in ((one, other), (other, one)):

            async def handler(exchange: Exchange, node: Node = node, to: Node = to) -> None:
                await forward(node.fleet, to.fleet.id, exchange)

            node.serve("echo", handler)
        assert await errors(await one.http.get("/echo/whole")) == (421, 42101)


async def test_what_a_client_says_of_another_process_is_refused() -> None:
    async with Pair.open() as pair:
        name = FORWARDED.decode()
        for header in ("", "x", "a b c d", "0" * 32 + " 1 e30= " + "0" * 64):
            answer = await pair.other.http.get("/echo/whole", headers={name: header})
            assert await errors(answer) == (421, 42101)
        assert (await pair.one.http.get("/echo/whole")).status_code == 200
        used = dict(pair.echo.scopes[0]["headers"])[FORWARDED].decode()
        for path in ("/echo/whole", "/echo/other"):
            answer = await pair.other.http.get(path, headers={name: used})
            assert await errors(answer) == (421, 42101)
        assert len(pair.echo.scopes) == 1
        for body in ({}, {"version": 1, "asker": "é", "asked": "é", "nonce": "é", "code": "é"}):
            answer = await pair.other.http.post("/fleet/session", json=body)
            assert answer.status_code in (400, 421)
        assert (await pair.other.http.get("/fleet/session")).status_code == 405
        assert (await pair.other.http.get("/fleet/other")).status_code == 404


async def test_credentials_go_to_no_other_program_at_the_address() -> None:
    """A process that ended, whose address another program has: it gets no request."""
    heard = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read(100_000)
        welcome = b'{"session":"s","nonce":"n","code":"00","idle_s":60}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(welcome), welcome))
        heard += await reader.read(100_000)
        writer.close()

    async with nodes(2) as (one, other), await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        address = server.sockets[0].getsockname()
        for url in (f"http://127.0.0.1:{address[1]}", other.url, "http://127.0.0.1:1"):
            ended = ProcessFleet(SECRET).id
            one.fleet.learn(Process(id=ended, url=url))
            instance = one.fleet.proof.new_id(ended)
            answer = await one.http.get(
                f"{SUB}/consumer/{instance}/messages", headers={"Authorization": "Bearer secret"}
            )
            assert await errors(answer) == (404, 40403), answer.text
        assert heard.startswith(b"POST /fleet/session ")
        assert b"Bearer" not in heard


async def test_a_process_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.fleet.peer.OPEN_S", 0.1)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with nodes(1) as (one,), await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        hangs, port = ProcessFleet(SECRET).id, server.sockets[0].getsockname()[1]
        one.fleet.learn(Process(id=hangs, url=f"http://127.0.0.1:{port}"))
        answer = await one.http.delete(f"{SUB}/consumer/{one.fleet.proof.new_id(hangs)}")
        assert await errors(answer) == (503, 50301)


# -- consumer instances


async def test_any_process_serves_an_instance_of_another_one() -> None:
    async with nodes(3) as service:
        one = service[0]
        answer = (await one.http.post(SUB, json={"name": "me", "initial_position": "earliest"})).json()
        await one.produce("a", "b", "c")
        path = f"{SUB}/consumer/{answer['id']}"
        got = []
        for node in (*service, *service):
            found = (await node.http.get(f"{path}/messages", params={"max_messages": 1, "timeout": 0})).json()
            got += [message["value"] for message in found["messages"]]
        assert got == ["a", "b", "c"]
        await one.produce("d")
        (message,) = (await service[1].http.get(f"{path}/messages")).json()["messages"]
        wanted = {"type": "negative", "messageIds": [message["messageId"]], "delay_ms": 0}
        for node in (service[2], one):  # the second time it is not out
            given = await node.http.post(f"{path}/cursor", json=wanted)
            assert [each["error_code"] for each in given.json()["messageIds"]] == [
                None if node is not one else 1
            ]
        (again,) = (await service[1].http.get(f"{path}/messages")).json()["messages"]
        assert again["messageId"] == message["messageId"]
        for node in service:
            same = await node.http.post(SUB, json={"id": answer["id"]})
            assert same.json()["id"] == answer["id"]
            assert same.json()["base_uri"] == f"{node.url}{path}"
        assert (await service[2].http.delete(path)).status_code == 204
        for node in service:
            assert await errors(await node.http.get(f"{path}/messages")) == (404, 40403)
            assert await errors(await node.http.get(f"{SUB}/consumer/x/messages")) == (404, 40403)


async def test_a_poll_that_was_passed_on_ends_with_a_message_or_with_its_client() -> None:
    async with nodes(2) as (one, other):
        tasks = Tasks()
        made = (await one.http.post(SUB, json={})).json()["id"]
        path = f"{SUB}/consumer/{made}/messages"
        instance = one.app.rest.services.instances._instances[made]
        asked = tasks.spawn(other.http.get(path, params={"timeout": 60_000}), "ask")
        await until_async(lambda: instance.requests == 1)
        await one.produce("a")
        (message,) = (await asked).json()["messages"]
        assert message["value"] == "a"
        async with httpx.AsyncClient(base_url=other.url) as http:
            asked = tasks.spawn(http.get(path, params={"timeout": 60_000}), "ask")
            await until_async(lambda: instance.requests == 1)
            asked.cancel()
            await until_async(lambda: instance.requests == 0)
        await one.produce("b")
        (message,) = (await other.http.get(path)).json()["messages"]
        assert message["value"] == "b"


async def test_a_poll_that_was_passed_on_ends_as_this_process_does() -> None:
    async with nodes(2) as (one, other):
        tasks = Tasks()
        made = (await one.http.post(SUB, json={})).json()["id"]
        instance = one.app.rest.services.instances._instances[made]
        path = f"{SUB}/consumer/{made}/messages"
        asked = tasks.spawn(other.http.get(path, params={"timeout": 60_000}), "ask")
        await until_async(lambda: instance.requests == 1)
        other.app.rest.drain()
        answer = await asked
        assert (answer.status_code, answer.json()) == (200, {"messages": []})
        await until_async(lambda: instance.requests == 0)


async def test_a_process_that_is_gone_takes_its_instances_and_no_others() -> None:
    async with nodes(1) as (one,):
        async with nodes(1) as (other,):
            one.fleet.learn(other.process)
            other.fleet.learn(one.process)
            gone = (await other.http.post(SUB, json={})).json()["id"]
            kept = (await one.http.post(SUB, json={})).json()["id"]
            for node in (one, other):
                for instance in (gone, kept):
                    answer = await node.http.get(f"{SUB}/consumer/{instance}/messages", params={"timeout": 0})
                    assert answer.status_code == 200, answer.text
        for path, status in ((f"{SUB}/consumer/{gone}", 404), (f"{SUB}/consumer/{kept}", 200)):
            answer = await one.http.get(f"{path}/messages", params={"timeout": 0})
            assert answer.status_code == status, answer.text
        again = await one.http.post(SUB, json={"id": gone, "subscription_type": "Exclusive", "name": "new"})
        assert await errors(again) == (
            409,
            40902,
        )  # the instance is a new one, which the other instance forbids


async def test_credentials_of_every_kind_pass() -> None:
    """Roles by token, by query and by certificate own their instances at every process, and no others have them."""
    auth = issuer.settings(certificates=True, super_users=("root",), audience=AUDIENCE)
    async with nodes(2, auth=auth) as (one, other):
        root, ann = ({"Authorization": f"Bearer {token(role)}"} for role in ("root", "ann"))
        made = (await one.http.post(SUB, json={}, headers=root)).json()["id"]
        path = f"{SUB}/consumer/{made}/messages"
        for options, status in (
            ({"headers": root}, 200),
            ({"params": {"token": token("root"), "timeout": "0"}}, 200),
            ({"headers": ann}, 403),
            ({"headers": {"Authorization": "Bearer x"}}, 401),
            ({}, 401),
        ):
            answer = await other.http.get(path, **{"params": {"timeout": 0}, **options})
            assert answer.status_code == status, answer.text
        counted = [peer.sent for peer in other.fleet]
        assert counted == [2]  # those that may not are not passed on
