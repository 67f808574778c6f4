"""Connecting again, once for each connection that is lost."""

import asyncio

import pytest

from penstock.client.aio.tasks import Backoff, Reconnecting
from penstock.client.errors import NotConnected, PulsarException
from penstock.testing.clock import settle


async def test_an_attempt_that_is_lost_before_it_fails_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next_s", lambda self: 0)
    attempts = 0
    ended: list[PulsarException] = []

    async def connect() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            reconnecting.lost()  # the connection breaks while it is being made, and tells everybody on it
            raise NotConnected("the connection broke")

    reconnecting = Reconnecting("it", connect, ended.append)
    running = asyncio.get_running_loop().create_task(reconnecting.run())
    reconnecting.lost()
    await settle()
    assert attempts == 2
    reconnecting.lost()  # and a later loss counts again
    await settle()
    assert attempts == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not ended
