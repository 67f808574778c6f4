"""Nothing is lost before a real Kafka while processes come and go: partitions change their owner under load.

One process stays; another one joins, leaves, freezes and is killed. Both have consumers of every subscription.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.kafka_faults import ROUNDS, SECRET, SOAK, Way, flags_of, new_service
from tests.support.kafka_reader import KafkaReader
from tests.support.keyed_load import Consuming, KeyedLoad
from tests.support.waiting import until

from penstock.testing.server import Launched, launch

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800 if SOAK else 600)]


@pytest.fixture(scope="module")
def service() -> str:
    return new_service()


@pytest.fixture(scope="module")
def server(kafka_way: Way, service: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    folder, flags = tmp_path_factory.mktemp("server"), flags_of(kafka_way.cluster, service)
    with launch(folder, *flags, environment=SECRET) as started:
        yield started


@asynccontextmanager
async def load_of(server: Launched, kafka_way: Way, service: str) -> AsyncIterator[KeyedLoad]:
    """Consumers of the server with others to come; once the block is left, all was delivered and is acknowledged."""
    async with KeyedLoad(server.url, f"g{uuid4().hex[:12]}") as load:
        yield load
        await load.stop()
        reader = KafkaReader(kafka_way.cluster.plain, service)
        lags = [partial(reader.lag, load.path, book.subscription) for book in load.books]
        await asyncio.to_thread(until, lambda: not any(lag() for lag in lags), said=load.__str__)
    print(load)
    load.check()


@asynccontextmanager
async def visitor(
    load: KeyedLoad, kafka_way: Way, service: str, folder: Path
) -> AsyncIterator[tuple[Launched, Consuming]]:
    """A second process with consumers, which becomes the owner of some partitions."""
    flags = flags_of(kafka_way.cluster, service)
    running = await asyncio.to_thread(Launched.start, folder, *flags, environment=SECRET)
    try:
        consuming = load.consume(running.url)
        await load.takes_part(consuming)
        yield running, consuming
        await load.all_came()
        await consuming.leave()
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(running.terminate)


async def test_processes_join_and_leave(
    kafka_way: Way, server: Launched, service: str, tmp_path: Path
) -> None:
    async with load_of(server, kafka_way, service) as load:
        for _ in range(2 * ROUNDS - 1):
            async with visitor(load, kafka_way, service, tmp_path) as (running, consuming):
                await consuming.leave()
                await load.all_came()
                again = load.consume(running.url)
                await load.takes_part(again)
                await asyncio.to_thread(running.terminate)
                await again.leave()


async def test_a_process_freezes_until_others_own_its_partitions(
    kafka_way: Way, server: Launched, service: str, tmp_path: Path
) -> None:
    """It continues with acknowledgements that it got before it froze: they must not count."""
    async with load_of(server, kafka_way, service) as load:
        for _ in range(ROUNDS):
            async with visitor(load, kafka_way, service, tmp_path) as (running, consuming):
                running.process.send_signal(signal.SIGSTOP)
                await load.all_came()
                running.process.send_signal(signal.SIGCONT)
                await load.takes_part(consuming)
                if SOAK:
                    await asyncio.to_thread(running.kill)
