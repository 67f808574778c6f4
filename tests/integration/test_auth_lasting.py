"""Connections that last longer than their credentials, or than a permission."""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pulsar
import pytest
import websockets
from tests.support.auth import AUDIENCE, GRANTS, NAMESPACE, headers_of, issuer, token
from tests.support.waiting import until
from tests.support.websocket import base64

import penstock
from penstock.client.errors import AuthorizationError
from penstock.protocols.binary.peer import Credentials
from penstock.protocols.caller import Caller
from penstock.testing.server import Address, Running, running

SHORT_S = 100  # until the test puts the server's clock forward; below the times of idle connections
BOUND_S = 90.0  # for what comes by itself; a busy machine may take long


@pytest.fixture
def server() -> Iterator[Running]:
    settings = issuer.settings(
        audience=AUDIENCE,
        super_users=("root",),
        leeway_s=0,
        permissions={NAMESPACE: {"lasting": ("produce", "consume")}},
    )
    with running(auth=settings) as address:
        yield address


def admin_client(server: Address) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=headers_of(token("root")), trust_env=False)


# -- the end of a token


def end_of_token(server: Running) -> None:
    """Let the time of a token of `SHORT_S` be over."""
    server.advance(SHORT_S * 1000)


@pytest.mark.parametrize(
    "path",
    [
        "/ws/v2/producer/persistent/public/default/t",
        "/ws/v2/consumer/persistent/public/default/t/s",
        "/ws/v2/reader/persistent/public/default/t",
        "/ws/v3/consumer/s?topicsPattern=public/default/.*",
    ],
)
async def test_a_websocket_ends_with_its_token(server: Running, path: str) -> None:
    given = token("lasting", expires_s=SHORT_S)
    async with asyncio.timeout(BOUND_S):
        async with websockets.connect(server.ws + path, additional_headers=headers_of(given)) as socket:
            await asyncio.to_thread(end_of_token, server)
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4005, "Failed to authenticate client")


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
def test_a_stream_ends_with_its_token(server: Running, accept: str) -> None:
    with admin_client(server) as client:
        client.post("/topics/public/default/t", json={"messages": [{"value": "first"}]})
    headers = {**headers_of(token("lasting", expires_s=SHORT_S)), "Accept": accept}
    path = f"{server.url}/topics/public/default/t/partitions/0/messages?follow=true"
    with (
        httpx.Client(trust_env=False, timeout=BOUND_S) as client,
        client.stream("GET", path, headers=headers) as got,
    ):
        lines = got.iter_lines()
        assert next(line for line in lines if "first" in line)
        end_of_token(server)
        assert not [line for line in lines if "first" in line]  # and the stream came to an orderly end


def test_a_long_poll_ends_with_its_token(server: Running) -> None:
    headers = headers_of(token("lasting", expires_s=SHORT_S))
    with (
        httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=BOUND_S) as client,
        admin_client(server) as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        made = client.post("/topics/public/default/t/subscription/s").json()
        path = f"{made['base_uri'].removeprefix(server.url)}/messages?timeout=300000"
        polling = pool.submit(client.get, path)
        # This question, and the poll.
        until(lambda: "penstock_http_requests_in_progress 2.0" in admin.get("/metrics").text)
        end_of_token(server)
        answer = polling.result(BOUND_S)
    assert answer.status_code == 401
    assert answer.json()["message"] == "the credentials have expired"


class Renewing:
    """A function that gives tokens of `SHORT_S` by the server's clock; how many each connection gave is counted."""

    def __init__(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server = server
        self.given: Counter[Credentials] = Counter()
        follow = Credentials.follow

        def counted(credentials: Credentials, who: Caller, method: str | None) -> None:
            follow(credentials, who, method)
            self.given[credentials] += 1

        monkeypatch.setattr(Credentials, "follow", counted)

    def __call__(self) -> str:
        return token("lasting", exp=self._server.now_ms() / 1000 + SHORT_S)

    def challenged(self) -> None:
        """Let it be time for another token, and wait until every connection gave it: clients have one for lookups, too."""
        before = Counter(self.given)
        self._server.advance(SHORT_S * 800)  # clients are asked a little before the end
        until(lambda: all(self.given[one] > count for one, count in before.items()))


def peers(server: Running, topic: str) -> set[str]:
    """Where the producers of a topic come from."""
    with admin_client(server) as client:
        stats = client.get(f"/admin/v2/persistent/public/default/{topic}/stats").json()
    return {one["address"] for one in stats["publishers"]}


def test_the_official_client_renews_its_token(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    renewing = Renewing(server, monkeypatch)
    client = pulsar.Client(
        server.pulsar,
        authentication=pulsar.AuthenticationToken(renewing),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    try:
        consumer = client.subscribe("renewed", "s")
        producer = client.create_producer("renewed")
        before = peers(server, "renewed")
        renewing.challenged()
        assert peers(server, "renewed") == before  # by a challenge, on the same connection
        producer.send(b"still here")
        assert consumer.receive(30_000).data() == b"still here"
    finally:
        client.close()


def test_our_client_renews_its_token(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    renewing = Renewing(server, monkeypatch)
    with penstock.Client(server.pulsar, authentication=penstock.AuthenticationToken(renewing)) as client:
        producer = client.create_producer("renewed")
        before = peers(server, "renewed")
        for _ in range(3):  # by then the first token has ended
            renewing.challenged()
        producer.send(b"still here")
        assert peers(server, "renewed") == before  # it never had to connect anew


async def test_a_connection_without_new_credentials_is_cut(server: Running) -> None:
    async with talking(server, token("lasting", expires_s=SHORT_S), refreshes=False) as (reader, _):
        await asyncio.to_thread(end_of_token, server)
        assert await reader.read() == b""


async def test_credentials_of_another_role_are_refused(server: Address) -> None:
    from penstock.wire.frames import encode
    from penstock.wire.pulsar_pb2 import AuthData, BaseCommand, CommandAuthResponse

    async with talking(server, token("lasting"), refreshes=True) as (reader, writer):
        other = AuthData(auth_method_name="token", auth_data=token("root").encode())
        command = BaseCommand(
            type=BaseCommand.AUTH_RESPONSE, auth_response=CommandAuthResponse(response=other)
        )
        writer.write(encode(command))
        assert b"of another role" in await reader.read()


@asynccontextmanager
async def talking(
    server: Address, given: str, *, refreshes: bool
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of Pulsar's protocol on which CONNECT was answered."""
    from penstock.wire.frames import encode
    from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect, FeatureFlags

    connect = CommandConnect(
        client_version="tests",
        auth_method_name="token",
        auth_data=given.encode(),
        protocol_version=21,
        feature_flags=FeatureFlags(supports_auth_refresh=refreshes),
    )
    host, port = server.pulsar.removeprefix("pulsar://").split(":")
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(encode(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
            size = int.from_bytes(await reader.readexactly(4))
            assert b"Penstock" in await reader.readexactly(size)
            yield reader, writer
        finally:
            writer.close()
            await writer.wait_closed()


# -- the end of a permission


async def test_websockets_end_with_their_permission(server: Address) -> None:
    with admin_client(server) as client:
        assert client.post(f"{GRANTS}/guest", json=["produce", "consume"]).status_code == 204
        given = headers_of(token("guest"))
        base = f"{server.ws}/ws/v2"
        topic = "persistent/public/default/t"
        async with asyncio.timeout(BOUND_S):
            producer = await websockets.connect(f"{base}/producer/{topic}", additional_headers=given)
            consumer = await websockets.connect(f"{base}/consumer/{topic}/s", additional_headers=given)
            pattern = await websockets.connect(
                f"{server.ws}/ws/v3/consumer/p?topicsPattern=public/default/t", additional_headers=given
            )
            try:
                await producer.send(json.dumps({"payload": base64("a")}))
                assert json.loads(await producer.recv())["result"] == "ok"
                assert json.loads(await consumer.recv())["payload"] == base64("a")
                assert json.loads(await pattern.recv())["payload"] == base64("a")
                assert client.post(f"{GRANTS}/guest", json=["consume"]).status_code == 204
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await producer.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 4006
                # The consumer is as it was.
                client.post("/topics/public/default/t", json={"messages": [{"value": "b"}]})
                assert json.loads(await consumer.recv())["payload"] == base64("b")
                assert client.delete(f"{GRANTS}/guest").status_code == 204
                for socket in (consumer, pattern):
                    async for _ in _until_closed(socket):
                        pass
                    assert socket.close_code == 4006
            finally:
                for socket in (producer, consumer, pattern):
                    await socket.close()


def test_pulsar_producers_and_consumers_end_with_their_permission(server: Address) -> None:
    with admin_client(server) as client:
        assert client.post(f"{GRANTS}/guest", json=["produce", "consume"]).status_code == 204
        authentication = penstock.AuthenticationToken(token("guest"))
        with penstock.Client(
            server.pulsar, authentication=authentication, operation_timeout_seconds=30
        ) as talker:
            producer = talker.create_producer("t", send_timeout_millis=10_000)
            consumer = talker.subscribe("t", "s")
            producer.send(b"a")
            assert consumer.receive(30_000).data() == b"a"
            assert client.delete(f"{GRANTS}/guest").status_code == 204
            stats = "/admin/v2/persistent/public/default/t/stats"
            until(lambda: not client.get(stats).json()["publishers"])
            until(lambda: not client.get(stats).json()["subscriptions"]["s"]["consumers"])
            with pytest.raises(penstock.PulsarException):
                producer.send(b"b")
            with pytest.raises(AuthorizationError):
                talker.create_producer("t")


def test_a_stream_ends_with_its_permission(server: Address) -> None:
    with admin_client(server) as client:
        client.post("/topics/public/default/t", json={"messages": [{"value": "first"}]})
        assert client.post(f"{GRANTS}/guest", json=["consume"]).status_code == 204
        headers = {**headers_of(token("guest")), "Accept": "application/x-ndjson"}
        path = "/topics/public/default/t/partitions/0/messages?follow=true"
        with client.stream("GET", path, headers=headers, timeout=BOUND_S) as got:
            lines = got.iter_lines()
            assert "first" in next(lines)
            with admin_client(server) as other:
                assert other.delete(f"{GRANTS}/guest").status_code == 204
            assert list(lines) == []


async def _until_closed(socket: websockets.ClientConnection) -> AsyncIterator[object]:
    """What still came before the end."""
    try:
        while True:
            yield await socket.recv()
    except websockets.ConnectionClosed:
        return


# -- other people's clients


def test_node(server: Address) -> None:
    script = Path(__file__).parents[1] / "js" / "token.mjs"
    done = subprocess.run(
        ["node", script, server.ws, token("lasting")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("hello", "")
