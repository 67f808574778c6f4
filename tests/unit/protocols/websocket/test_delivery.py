"""Deliveries are written in groups; what is in none that was written goes back."""

import asyncio
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from tests.unit.engines.core.brokers import Bench, bench

from penstock.engines.subscription import Consumer
from penstock.protocols.proxied import Meter
from penstock.protocols.rates import Allowance
from penstock.protocols.websocket.delivery import GROUP_MAX, Deliverer
from penstock.protocols.websocket.socket import Socket
from penstock.testing.clock import settle


class WrittenSocket:
    """Keeps the groups that are written; from `gone_after` groups on it is gone."""

    def __init__(self, gone_after: int = 1 << 30) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self.groups: list[list[bytes]] = []
        self.gone = False
        self.allowance: Allowance | None = None
        self._gone_after = gone_after

    async def send_all(self, frames: Sequence[bytes]) -> None:
        if len(self.groups) >= self._gone_after:
            self.gone = True
        else:
            self.groups.append(list(frames))

    @property
    def payloads(self) -> list[bytes]:
        return [b64decode(msgspec.json.decode(frame)["payload"]) for group in self.groups for frame in group]


async def delivered(b: Bench, consumer: Consumer, socket: WrittenSocket) -> Deliverer:
    deliverer = Deliverer(cast(Socket, socket), cast(Any, consumer), Meter(b.clock), names_topic=False)
    async with asyncio.TaskGroup() as group:
        group.create_task(deliverer.run())
        for _ in range(20):
            await settle()
        deliverer.stop()
    return deliverer


@pytest.mark.parametrize("batch", [True, False])
async def test_groups_are_bounded_and_in_order(batch: bool) -> None:
    async with bench() as b:
        await b.publish(*[b"%03d" % n for n in range(150)], batch=batch)
        consumer, socket = await b.consumer(), WrittenSocket()
        deliverer = await delivered(b, consumer, socket)
        assert deliverer.empty
        assert [len(group) for group in socket.groups] == [GROUP_MAX, GROUP_MAX, 150 - 2 * GROUP_MAX]
        assert socket.payloads == [b"%03d" % n for n in range(150)]
        assert consumer.unacked == 150
        assert len(deliverer.known) == 150


@pytest.mark.parametrize("batch", [True, False])
async def test_a_group_that_was_not_written_goes_back_with_what_was_taken(batch: bool) -> None:
    async with bench() as b:
        ids = await b.publish(*[b"%03d" % n for n in range(150)], batch=batch)
        first, socket = await b.consumer(), WrittenSocket(gone_after=1)
        deliverer = await delivered(b, first, socket)
        assert not deliverer.empty
        deliverer.give_back()
        assert deliverer.empty
        second = await b.consumer()
        for message_id in ids[:GROUP_MAX]:
            await first.acknowledge(message_id)
        await first.leave()
        got = await b.taken(second)
        assert [m.payload for _, m, _ in got] == [b"%03d" % n for n in range(GROUP_MAX, 150)]
        assert {d.redeliveries for _, _, d in got} == {0}


async def test_large_messages_end_a_group() -> None:
    async with bench() as b:
        await b.publish(*[b"x" * 40_000] * 5, batch=False)
        consumer, socket = await b.consumer(), WrittenSocket()
        await delivered(b, consumer, socket)
        assert [len(group) for group in socket.groups] == [2, 2, 1]


async def test_a_rate_ends_a_group() -> None:
    async with bench() as b:
        await b.publish(*[b"x" * 300] * 10, batch=False)
        consumer, socket = await b.consumer(), WrittenSocket()
        socket.allowance = Allowance(b.clock, "somebody", 0, 1000)
        deliverer = Deliverer(cast(Socket, socket), cast(Any, consumer), Meter(b.clock), names_topic=False)
        async with asyncio.TaskGroup() as group:
            group.create_task(deliverer.run())
            await settle()
            assert [len(one) for one in socket.groups] == [2]  # the second exceeds the bytes of one second
            for _ in range(20):
                await b.clock.advance(600)
            assert len(socket.payloads) == 10
            deliverer.stop()
        assert max(len(one) for one in socket.groups) == 2
