"""Nothing is lost before a real Kafka while processes come and go: partitions change their process under load.

Consumers are in groups with a process that stays and one that joins, leaves, freezes and is killed.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.cluster_load import ANSWER_S
from tests.support.group_load import KEYS, PARTITIONS, Consuming, GroupLoad, Holding
from tests.support.kafka_broker import KafkaCluster
from tests.support.kafka_faults import ROUNDS, SOAK, Way, flags_of
from tests.support.kafka_reader import KafkaReader
from tests.support.waiting import until, until_async

from penstock.testing.server import Launched, launch

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800 if SOAK else 600)]


@pytest.fixture(scope="module")
def server(kafka_way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with launch(tmp_path_factory.mktemp("server"), *flags_of(kafka_way.cluster)) as started:
        yield started


@asynccontextmanager
async def groups(server: Launched, cluster: KafkaCluster) -> AsyncIterator[GroupLoad]:
    """Consumers of the server with others to come; once the block is left, all was delivered and is acknowledged."""
    async with GroupLoad(server.url, f"g{uuid4().hex[:12]}") as load:
        yield load
        await load.stop()
        reader = KafkaReader(cluster.plain)
        lags = [partial(reader.lag, load.path, book.subscription) for book in load.books]
        await asyncio.to_thread(until, lambda: not any(lag() for lag in lags), said=load.__str__)
    print(load)
    load.check()


@asynccontextmanager
async def visitor(load: GroupLoad, kafka_way: Way, folder: Path) -> AsyncIterator[tuple[Launched, Consuming]]:
    """A second process, which has consumers of its own and gets partitions."""
    running = await asyncio.to_thread(Launched.start, folder, *flags_of(kafka_way.cluster))
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


async def test_processes_join_and_leave(kafka_way: Way, server: Launched, tmp_path: Path) -> None:
    async with groups(server, kafka_way.cluster) as load:
        for _ in range(2 * ROUNDS - 1):
            async with visitor(load, kafka_way, tmp_path) as (running, consuming):
                await consuming.leave()
                await load.all_came()
                again = load.consume(running.url)
                await load.takes_part(again)
                await asyncio.to_thread(running.terminate)
                await again.leave()


async def test_a_process_freezes_until_it_is_thrown_out(
    kafka_way: Way, server: Launched, tmp_path: Path
) -> None:
    """What it was told before it froze, it works on when others have its partitions: it must not count."""
    async with groups(server, kafka_way.cluster) as load:
        for _ in range(ROUNDS):
            async with visitor(load, kafka_way, tmp_path) as (running, consuming):
                running.process.send_signal(signal.SIGSTOP)
                await load.all_came()
                running.process.send_signal(signal.SIGCONT)
                await load.takes_part(consuming)
                if SOAK:
                    await asyncio.to_thread(running.kill)


async def test_late_acknowledgements_are_refused(kafka_way: Way, server: Launched, tmp_path: Path) -> None:
    """One holds messages, and another one gets those of the partitions that go to it: it alone may acknowledge them."""
    topic = f"l{uuid4().hex[:12]}"
    path = f"public/default/{topic}"
    async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S) as http:
        made = await http.put(f"/admin/v2/persistent/{path}/partitions", json=PARTITIONS)
        assert made.status_code == 204
        messages = [{"key": f"k{number}", "value": f"k{number}:0"} for number in range(KEYS)]
        answer = await http.post(f"/topics/{path}", json={"messages": messages})
        assert not any(one["error_code"] for one in answer.json()["messageIds"])
    with launch(tmp_path, *flags_of(kafka_way.cluster)) as other:
        async with Holding(server.url, path, topic) as first:
            await until_async(lambda: len(first.held) == KEYS)
            async with Holding(other.url, path, topic) as second:
                await until_async(lambda: second.held)
                late = list(second.held)
                for message_id in late:
                    await first.acknowledge(message_id)
                await until_async(lambda: first.answers.keys() >= set(late))
                assert "ok" not in [first.answers[one] for one in late]
                for message_id in late:
                    await second.acknowledge(message_id)
                await until_async(lambda: second.answers.keys() >= set(late))
                assert {second.answers[one] for one in late} == {"ok"}
    left = KafkaReader(kafka_way.cluster.plain).left(path, topic, Counter())
    assert left.total() == KEYS - len(late)
