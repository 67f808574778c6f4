"""A service on asyncio, and its test: requests are answered, and everything is acknowledged."""

import asyncio

import pytest

import penstock
from penstock.testing.server import Running


async def answer(service_url: str, serving: asyncio.Event) -> None:
    """The code under test: the length of each text that is asked for, until it is cancelled."""
    async with penstock.aio.Client(service_url) as client:
        consumer = await client.subscribe("lengths", "service", penstock.ConsumerType.Shared)
        serving.set()
        while True:
            message = await consumer.receive()
            await consumer.acknowledge(message, reply=str(len(message.data())).encode())


@pytest.mark.anyio  # or asyncio, with pytest-asyncio
async def test_requests_are_answered(penstock_server: Running) -> None:
    serving = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        service = tasks.create_task(answer(penstock_server.pulsar, serving))
        await serving.wait()
        # The calls of penstock_server block: in a thread they leave the loop to the service.
        assert await asyncio.to_thread(penstock_server.request, "lengths", "four") == b"4"
        await asyncio.to_thread(penstock_server.wait_until_acked, "lengths", "service")
        service.cancel()
