"""Requests to another process: how they fail, and how many there may be at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from penstock.broker.fleet import Caller, ForwardedRequest, Process
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.peer import CLIENT_MAX, CONNECTIONS_MAX, LASTING_MAX, READY, Slots
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.runtime.tasks import Tasks

SECRET = Secret("a secret that both processes know")


async def ask(url: str) -> None:
    """Send a request to a process at an address."""
    fleet = ProcessFleet(SECRET)
    process = Process(id=ProcessFleet(SECRET).id, url=url)
    fleet.learn(process)
    request = ForwardedRequest(method=b"GET", target=b"/", headers=[], body=b"", caller=Caller())
    try:
        async with fleet.send(process.id, request, 60):
            pass
    finally:
        await fleet.close()


async def test_what_cannot_be_connected_to_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its name is none, its TLS is none, or it says nothing; a request that is cancelled is cancelled."""
    accepted = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        await reader.read()
        writer.close()

    async with (
        await asyncio.start_server(refuse, "127.0.0.1", 0) as refusing,
        await asyncio.start_server(hang, "127.0.0.1", 0) as hanging,
    ):
        refuses, hangs = (
            f"https://127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (refusing, hanging)
        )
        asking = Tasks().spawn(ask(hangs), "ask")
        await accepted.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        monkeypatch.setattr("penstock.engines.fleet.peer.OPEN_S", 0.05)
        for url in (refuses, hangs, "http://no..name:1"):
            with pytest.raises(PenstockError) as raised:
                await ask(url)
            assert raised.value.kind is ErrorKind.UNAVAILABLE


async def test_no_client_takes_all_slots_and_long_polls_leave_some() -> None:
    slots = Slots()

    def request(client: str, *, lasts: bool = True, target: bytes = b"/") -> ForwardedRequest:
        return ForwardedRequest(
            method=b"GET", target=target, headers=[], body=b"", caller=Caller(), client=client, lasts=lasts
        )

    async with AsyncExitStack() as held:

        async def hold(count: int, each: ForwardedRequest) -> None:
            for _ in range(count):
                await held.enter_async_context(slots.hold(each, 0.01))

        await hold(CLIENT_MAX, request("a"))
        with pytest.raises(TimeoutError):
            await hold(1, request("a", lasts=False))
        await hold(LASTING_MAX - CLIENT_MAX, request("b"))
        with pytest.raises(TimeoutError):
            await hold(1, request("c"))
        await hold(CONNECTIONS_MAX - LASTING_MAX, request("c", lasts=False))
        with pytest.raises(TimeoutError):
            await hold(1, request("b", lasts=False))
        await hold(1, request("a", target=READY))
    async with slots.hold(request("a"), 0.01):  # all are free again
        assert not slots._all.locked()
