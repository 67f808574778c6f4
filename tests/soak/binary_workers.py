"""Clients of a soak over Pulsar's protocol (the official one and ours), and writers that commit in stages.

The pauses are their pace, and what a client waits for before it tries again.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pulsar

import penstock
from penstock.client import aio
from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

from .workers import Crowd

IN_FLIGHT = 50


T = TypeVar("T")


async def opened(crowd: Crowd, make: Callable[[], Awaitable[T]]) -> T:
    """What is opened while the server may be away: tried again."""
    while True:
        try:
            return await make()
        except penstock.PulsarException as error:
            crowd.count(f"ours, opening: {type(error).__name__}")
            await asyncio.sleep(0.2)


async def ours(crowd: Crowd, *, tls: bool, producers: int) -> None:
    """Our client for asyncio: a connection of its own, and several producers on it."""
    server = crowd.server
    options = {"tls_trust_certs_file_path": server.pki.ca_file} if tls else {}
    client = aio.Client(
        server.pulsar_tls if tls else server.pulsar,
        authentication=penstock.AuthenticationToken(server.token),
        operation_timeout_seconds=120,
        **options,
    )

    async def produce() -> None:
        writer = crowd.book.writer("ours", "binary", once=True)
        producer = await opened(
            crowd,
            lambda: client.create_producer("binary", producer_name=writer.name, send_timeout_millis=0),
        )

        async def send(number: int) -> None:
            await producer.send(
                writer.value(number).encode(), partition_key=writer.key(number), sequence_id=number
            )
            writer.acknowledged.add(number)

        under_way: set[asyncio.Task[None]] = set()
        while not crowd.over.is_set():
            for number in writer.take(crowd.dice.randint(1, 10)):
                under_way.add(asyncio.get_running_loop().create_task(send(number)))
            await crowd.rest()
            if len(under_way) > IN_FLIGHT:
                await asyncio.wait(under_way)
            done = {task for task in under_way if task.done()}
            under_way -= done
            for task in done:
                task.result()
        await asyncio.gather(*under_way)

    async def consume() -> None:
        """Reads the other's messages, too: acknowledged ones do not come again to this process."""
        consumer = await opened(
            crowd, lambda: client.subscribe("official", "ours", penstock.ConsumerType.Shared)
        )
        while not crowd.drained.is_set():
            try:
                message = await consumer.receive(timeout_millis=500)
            except penstock.Timeout:
                continue
            crowd.book.seen["official"].add(message.data().decode())
            await consumer.acknowledge(message)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(producers):
                group.create_task(produce())
            group.create_task(consume())
    finally:
        await client.close()


class Official:
    """The official client: one connection, some producers, and threads of its own."""

    def __init__(self, crowd: Crowd, producers: int) -> None:
        self._crowd = crowd
        self._over = threading.Event()
        server = crowd.server
        self._client = pulsar.Client(
            server.pulsar,
            authentication=pulsar.AuthenticationToken(server.token),
            operation_timeout_seconds=120,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(server.folder / "pulsar-client.log")),
        )
        self._writers = [crowd.book.writer("official", "official", once=True) for _ in range(producers)]
        self._producers = [
            self._client.create_producer(
                "official", producer_name=each.name, send_timeout_millis=0, block_if_queue_full=True
            )
            for each in self._writers
        ]
        self._consumer = self._client.subscribe("binary", "official", pulsar.ConsumerType.Shared)
        self._drained = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        crowd = self._crowd
        while not self._over.is_set():
            for writer, producer in zip(self._writers, self._producers, strict=True):
                if len(writer.attempts) - len(writer.acknowledged) > IN_FLIGHT:
                    continue
                for number in writer.take(3):
                    value = writer.value(number).encode()

                    def on_sent(result: pulsar.Result, _: object, n: int = number, w=writer) -> None:  # type: ignore[no-untyped-def]
                        if result == pulsar.Result.Ok:
                            w.acknowledged.add(n)
                        else:
                            crowd.count(f"official: {result}")

                    producer.send_async(value, on_sent, partition_key=writer.key(number))
            self._over.wait(crowd.pace_s)

    def _consume(self) -> None:
        while not self._drained.is_set():
            try:
                message = self._consumer.receive(timeout_millis=500)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException:
                time.sleep(0.1)
                continue
            self._crowd.book.seen["binary"].add(message.data().decode())
            self._consumer.acknowledge(message)

    def finish(self) -> None:
        """Publish no more, and wait until all is answered."""
        self._over.set()
        self._threads[0].join()
        for producer in self._producers:
            producer.flush()

    def close(self) -> None:
        self._over.set()
        self._drained.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


async def committing(crowd: Crowd, pool: ThreadPoolExecutor) -> None:
    """Batches of two stages for two partitions each, committed all at once."""
    await asyncio.get_running_loop().run_in_executor(pool, _commit_all, crowd)


def _commit_all(crowd: Crowd) -> None:
    writer = crowd.book.writer("staged", "staged", once=True)
    access = Access(url=crowd.server.url, token_file=str(crowd.server.token_file))
    batch = 0
    with Stages(access, timeout_s=20, retry_s=300) as stages:
        while not crowd.over.is_set():
            numbers = writer.take(10)
            halves = numbers[::2], numbers[1::2]
            counts = []
            bodies = []
            for stage, half in zip("ab", halves, strict=True):
                entry = batch_entry(
                    pack_plain([writer.value(n).encode() for n in half]),
                    len(half),
                    producer=writer.name,
                    sequence_id=half[0],
                    publish_time=time.time_ns() // 1_000_000,
                )
                topic = f"persistent://public/default/staged-partition-{'ab'.index(stage)}"
                bodies.append((stage, b"".join(pack_sections([(topic, [entry])]))))
                counts.append(StageCount(stage, 1, len(half), len(entry)))
            for attempt in range(100):
                try:
                    for stage, body in bodies:
                        stages.stage(writer.name, batch, stage, 0, body)
                    stages.commit(writer.name, batch, counts)
                    writer.acknowledged.update(numbers)
                    crowd.count("commits")
                    break
                except PenstockError as error:
                    crowd.count(f"staged: {error.kind.name}")
                    if attempt == 99:
                        crowd.book.broken.append(f"staged: {error.message}")
                    time.sleep(crowd.pace_s)
            batch += 1
            time.sleep(crowd.pace_s)
